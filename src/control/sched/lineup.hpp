// Who is next. Queues share the cluster by guarantee and weight, the users of a queue share it evenly, and
// what either used lately counts against it. Used by one pass.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "control/sched/ranking.hpp"
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

  // Whose share has changed, in the order in which that happened: whoever ranks them reads on from where it
  // was.
  struct Change {
    QueueIndex queue = 0;  // and those above it
    UserIndex user = 0;
  };
  const std::vector<Change>& changes() const { return changes_; }

 private:
  bool above(QueueIndex queue, QueueIndex other) const;

  std::vector<QueueView> queues_;
  std::vector<UserView> users_;
  std::vector<Change> changes_;
};

class Lineup {
 public:
  // `order` is among the jobs of one user in one queue at one priority.
  Lineup(const Snapshot& snapshot, const Shares& shares, const OrderOf& order);
  Lineup(const Lineup&) = delete;
  Lineup& operator=(const Lineup&) = delete;

  // Takes the next one out, nullptr when there is none. Goes by the shares as they are then.
  const JobView* next();

  // How often two lines or two queues were compared so far.
  std::uint64_t compared() const;

 private:
  // The jobs of one user in one queue at one priority.
  struct Line : Ranked<std::tuple<double, Instant, JobId>> {
    QueueIndex queue = 0;
    UserIndex user = 0;
    std::vector<const JobView*> jobs;
    std::size_t at = 0;
  };
  // Of one queue, ranked among those beside it while it, or one below it, has jobs.
  struct Desk : Ranked<std::tuple<bool, double, QueueIndex>> {
    std::map<std::int32_t, std::vector<Line>, std::greater<>> by_priority;  // none without jobs
    Ranking<Line> lines;        // of the highest priority, from when its first job is taken
    Ranking<Desk> desks_below;  // that have jobs, or have some below them
    std::int64_t pending = 0;   // jobs left, those below it too
  };

  void add(const JobView& job, std::map<std::tuple<QueueIndex, std::int32_t, UserIndex>, std::size_t>& lines);
  void catch_up();
  void rank(QueueIndex queue);
  void rank(Line& line);
  QueueIndex choose_queue() const;
  const JobView* take_from(Desk& desk);
  void open_lines(Desk& desk);
  void close_line(Desk& desk, Line& line);
  Ranking<Desk>& beside(QueueIndex queue);

  const Shares& shares_;
  std::size_t changes_seen_ = 0;
  std::vector<Desk> desks_;
  Ranking<Desk> roots_;
  std::vector<std::vector<Line*>> ranked_of_user_;  // one at most in each queue
};

}  // namespace tutti::sched
