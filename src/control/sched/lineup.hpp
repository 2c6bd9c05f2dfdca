// Who is next. Queues share the cluster by guarantee and weight, the users of a queue share it evenly, and
// what either used lately counts against it. Used by one pass.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "control/sched/sched.hpp"

namespace tutti::sched {

// Smaller comes first. Made once for each job of a pass.
using OrderKey = std::tuple<double, double, double, Instant, JobId>;
using OrderOf = std::function<OrderKey(const JobView&)>;

// The jobs in that order.
std::vector<const JobView*> sorted(std::vector<const JobView*> jobs, const OrderOf& order);

// What queues and users hold, as it changes during a pass.
class Shares {
 public:
  explicit Shares(const Snapshot& snapshot);

  void add(const JobView& job, std::int64_t share);
  // How much more the job's queue, the queues above it and its user may take; no_limit if nothing bounds it.
  std::int64_t allowed(const JobView& job) const;
  // "queue research uses 16 of at most 16 GPUs".
  std::string describe_limit(const JobView& job, std::int64_t share) const;

  // Would so much more still be within a guarantee that the other job's queue does not share?
  bool guaranteed(const JobView& job, std::int64_t share, const JobView& other) const;
  // Does the job hold what its queue only borrows, seen from the other's queue?
  bool borrowed(const JobView& job, std::int64_t share, const JobView& other) const;

  const QueueView& queue(QueueIndex at) const { return queues_[static_cast<std::size_t>(at)]; }
  const UserView& user(UserIndex at) const { return users_[static_cast<std::size_t>(at)]; }
  std::size_t queues() const { return queues_.size(); }

 private:
  bool above(QueueIndex queue, QueueIndex other) const;

  std::vector<QueueView> queues_;
  std::vector<UserView> users_;
};

class Lineup {
 public:
  // `order` is among the jobs of one user in one queue at one priority.
  Lineup(const Snapshot& snapshot, const Shares& shares, const OrderOf& order);

  // Takes the next one out, nullptr when there is none. Asks the shares anew each time.
  const JobView* next();

 private:
  struct Line {
    UserIndex user = 0;
    std::vector<const JobView*> jobs;
    std::size_t at = 0;

    bool empty() const { return at == jobs.size(); }
  };
  struct Desk {  // of one queue
    std::map<std::int32_t, std::vector<Line>, std::greater<>> by_priority;
    std::vector<QueueIndex> children;
    std::int64_t own = 0;      // jobs left
    std::int64_t pending = 0;  // those below it too
  };

  QueueIndex choose_queue() const;
  const JobView* take_from(Desk& desk);

  const Shares& shares_;
  std::vector<Desk> desks_;
  std::vector<QueueIndex> roots_;
};

}  // namespace tutti::sched
