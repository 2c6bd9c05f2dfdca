#include "control/sched/sched.hpp"

#include <algorithm>

namespace tutti::sched {

const std::string* Waiting::find(JobId job) const {
  const auto found = std::lower_bound(jobs.begin(), jobs.end(), job,
                                      [](const Entry& entry, JobId id) { return entry.job < id; });
  if (found == jobs.end() || found->job != job) return nullptr;
  return &whys[found->why];
}

Instant expected_end(const JobView& job, Instant start, Instant now) {
  if (job.expected == Duration::zero()) return never;
  if (start + job.expected > now) return start + job.expected;
  // Past its estimate: what has run for so long is expected to run as long again.
  return now + std::max<Duration>(now - start, 1s);
}

Instant release_of(const JobView& job, Instant now) {
  if (!job.ending) return expected_end(job, job.started_at, now);
  if (job.ends_by == Instant()) return now + job.grace;
  if (job.ends_by > now) return job.ends_by;
  // Past its grace period: its node is silent, or even a kill does not end it. It may take as long again.
  return now + (now - job.ends_by);
}

bool ends_soon(const JobView& gang, Instant now) {
  return (gang.ending ? release_of(gang, now) - now : gang.grace) <= soon_max;
}

double devices_of(const JobView& job) {
  const std::int32_t ranks = job.places.slots.empty() ? job.shape->ranks : job.places.ranks();
  return static_cast<double>(ranks) * job.shape->gpu_share / whole_share;
}

double served_by(const JobView& job, Instant now) {
  if (job.places.slots.empty()) return job.served;
  return job.served + devices_of(job) * std::chrono::duration<double>(now - job.started_at).count();
}

std::int64_t least_share(const JobView& job) { return share_with(job, counts_of(*job.shape).back()); }

std::int64_t held_share(const JobView& job) { return share_with(job, job.places.ranks()); }

std::int64_t share_with(const JobView& job, std::int32_t ranks) {
  return std::int64_t{ranks} * job.shape->gpu_share;
}

}  // namespace tutti::sched
