// How long what is over is kept: finished jobs, and nodes that were lost. Plain data, owned by the state's
// loop.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/time.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

struct Job;

constexpr std::size_t kept_jobs_default = 100'000;
constexpr Duration kept_jobs_age_default = 30 * 24h;
constexpr Duration kept_nodes_age_default = 7 * 24h;
// Of nodes that were lost, so many without ranks.
constexpr std::size_t kept_lost_nodes_max = 10'000;
// A job is kept with the state and place of each of its ranks: of all finished jobs together, this many.
constexpr std::size_t kept_ranks_max = 2'000'000;
// Elements of arrays that go on are kept beyond all that, so that the end of the array can be told: this
// many.
constexpr std::size_t kept_elements_max = 20'000;
// Of one event: what is due is removed bit by bit, so that nobody waits behind it; and the more there is
// beyond what is to be kept, the larger the bits, so that nobody can submit faster than they go.
constexpr std::size_t expired_per_step_min = 200;
constexpr std::size_t expired_per_step_max = 4'000;
constexpr std::size_t expired_share = 16;  // of what is too much, the 16th part
constexpr std::size_t expired_bytes_per_step_max = 16 << 20;
constexpr std::size_t users_looked_at_per_step_max = 1'000;

// With so many finished jobs beyond those that are to be kept no others are taken of users with more than a
// quarter of all finished ones; with twice as many, of nobody. They can be as many because what has just
// ended stays.
constexpr std::size_t finished_over_max = 100'000;
constexpr std::size_t finished_many_share = 4;

struct Retention {
  std::size_t jobs_max = kept_jobs_default;
  std::size_t ranks_max = kept_ranks_max;
  // Also when there are too many, and when a clock that was set back makes the newest look like the oldest:
  // who waits for a job hears of its end.
  Duration jobs_age_min = 10s;
  Duration jobs_age_max = kept_jobs_age_default;    // since their end; 0: for ever
  Duration nodes_age_max = kept_nodes_age_default;  // of lost ones, since their loss; 0: for ever
  std::size_t lost_nodes_max = kept_lost_nodes_max;
  bool forgets_use = true;  // what users had that has come to weigh nothing
  // After a clock has jumped nothing goes by its age for so long: a wrong one is set right again within that.
  Duration clock_rest = 1h;
};

// The finished jobs, those that ended first in front, and whose they are.
class Ended {
 public:
  using Entry = std::pair<Instant, sched::JobId>;
  struct Left {
    Instant heard_at;            // a node may have been away when its ranks ended
    std::size_t said_bytes = 0;  // what its ranks and its end left to say
    std::size_t bytes = 0;       // with its part of what was asked for

    friend bool operator==(const Left&, const Left&) = default;
  };
  struct OfUser {
    std::set<Entry> entries;
    std::size_t ranks = 0;
    std::size_t bytes = 0;

    friend bool operator==(const OfUser&, const OfUser&) = default;
  };

  // False if it was known.
  bool add(const Job& job, Instant heard_at);
  void remove(const Job& job);
  // The clock was set by so much: what was heard lately still was.
  void move(Duration by);

  const std::map<Entry, Left>& entries() const { return entries_; }
  const std::map<std::string, OfUser>& users() const { return users_; }
  std::size_t jobs() const { return entries_.size(); }
  std::size_t ranks() const { return ranks_; }
  std::size_t of_user(const std::string& user) const;  // jobs
  std::size_t said_bytes() const { return said_bytes_; }

  friend bool operator==(const Ended&, const Ended&) = default;

 private:
  std::map<Entry, Left> entries_;
  std::map<std::string, OfUser> users_;
  std::size_t ranks_ = 0;
  std::size_t said_bytes_ = 0;
};

}  // namespace tutti::cluster
