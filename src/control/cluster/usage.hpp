// What queues and users hold and wait for, and what they have had. What was used lately counts less and less:
// half as much after a while. A part of the index.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/cluster/change.hpp"

namespace tutti::cluster {

constexpr Duration usage_half_life = 7 * 24h;
// What is left of the use of somebody who is gone weighs nothing any more: device-seconds.
constexpr double use_forgotten_below = 1;

// Device-seconds that were used, as much as was left of them at that time.
struct PastUse {
  double amount = 0;
  Instant at;

  void add(double more, Instant now);
  double left(Instant now) const;

  friend bool operator==(const PastUse&, const PastUse&) = default;
};

class Usage {
 public:
  struct Use {
    std::int64_t in_use = 0;
    double past = 0;           // on average, lately
    std::int32_t waiting = 0;  // jobs
    std::int32_t running = 0;
  };

  void changed(const Change& change);
  // What its earlier attempts had, of a job that was not followed while it ran.
  void remember(const Job& job, Instant at);
  // What the jobs of a user had that are not kept any longer.
  void remember(const std::string& queue, const std::string& user, const PastUse& past);

  // The clock was set by so much.
  void move(Duration by);
  // Of so many users, and the next ones next time: those that have no job, and had so little or so long ago
  // that it weighs nothing, are forgotten.
  void forget_some(Instant now, std::size_t users);
  std::size_t users() const { return users_.size(); }

  // Of a queue with those below it.
  Use of_queue(const std::string& queue, Instant now) const;
  Use of_user(const std::string& queue, const std::string& user, Instant now) const;
  std::vector<std::pair<std::string, Use>> users_of_queue(const std::string& queue, Instant now) const;

  // Is the same in use, and do as many wait? What was used lately is history, and cannot be read from a
  // state.
  bool same_in_use(const Usage& other) const;

 private:
  struct Used : PastUse {
    std::int64_t in_use = 0;
    std::int32_t waiting = 0;
    std::int32_t running = 0;

    Use use(Instant now) const;
    bool has_jobs() const { return waiting != 0 || running != 0; }
  };
  using UserKey = std::pair<std::string, std::string>;  // queue and user

  // Everything that a job counts for: its user, its queue and the queues above.
  template <class Visit>
  void visit(const std::string& queue, const std::string& user, Visit visit);
  template <class Visit>
  void visit(const Job& job, Visit visit);

  std::map<std::string, Used> queues_;  // with the queues below
  std::map<UserKey, Used> users_;
  UserKey looked_at_;  // by forget_some(), last
};

}  // namespace tutti::cluster
