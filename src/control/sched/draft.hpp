// The plan while a pass writes it. Every gang that had its turn is in it once: it starts, or waits for a
// reason. Reasons are shared by the many that wait for the same. Used by one pass.
#pragma once

#include "control/sched/sched.hpp"

namespace tutti::sched {

class Draft {
 public:
  using Reason = std::uint32_t;

  // What is held waits from the beginning.
  explicit Draft(const Snapshot& snapshot);

  void start(const JobView& job, Places places);
  Reason say(std::string why);
  void wait(const JobView& job, Reason why) { wait(job.id, why); }
  void stop(const JobView& gang, std::string why);
  void promise(Promise promise) { plan_.promises.push_back(std::move(promise)); }
  void soon(const JobView& job, Instant start) { plan_.soon.push_back({job.id, start}); }
  void wake_by(Instant when);
  void leave_more() { plan_.more = true; }

  // Those that start, each with its job.
  const std::vector<Start>& starts() const { return plan_.starts; }
  const JobView& started(std::size_t start) const { return *started_[start]; }
  const std::vector<Promise>& promises() const { return plan_.promises; }

  Plan finish() &&;

 private:
  void wait(JobId job, Reason why) { waiting_.jobs.push_back({job, why}); }

  Plan plan_;
  std::vector<const JobView*> started_;  // as plan_.starts
  Waiting waiting_;
};

}  // namespace tutti::sched
