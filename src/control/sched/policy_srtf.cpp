// srtf, the shortest remaining time first. Assumes that it knows how long each gang still runs, which only a
// simulation does, and that stopping a gang costs nothing: what remains the longest makes way for what would
// be over sooner. The yardstick for policies that do not know.
#include "control/sched/policies.hpp"

namespace tutti::sched {
namespace {

Duration left(const JobView& job, Instant now) {
  return job.places.slots.empty() ? job.remaining : job.remaining - (now - job.started_at);
}

}  // namespace

Plan schedule_srtf(const Snapshot& snapshot, Instant now) {
  const TightestNode tightest;
  const auto seconds = [now](const JobView& job) {
    return std::chrono::duration<double>(left(job, now)).count();
  };
  Rules rules{.order = [&](const JobView& job) -> OrderKey {
                return {seconds(job), 0, 0, job.submitted_at, job.id};
              },
              .choice = &tightest};
  rules.displaces = [&](const Shares&, const JobView& waiting, const JobView& running) {
    return left(waiting, now) < left(running, now);
  };
  rules.stop_order = [&](const JobView& job) -> OrderKey {
    return {-seconds(job), 0, 0, job.submitted_at, job.id};
  };
  return run_pass(snapshot, now, rules);
}

}  // namespace tutti::sched
