#include "control/sched/draft.hpp"

#include <algorithm>

namespace tutti::sched {

Draft::Draft(const Snapshot& snapshot) {
  plan_.revision = snapshot.revision;
  for (const Held& held : snapshot.held) wait(held.job, say(held.why));
}

void Draft::start(const JobView& job, Places places) {
  plan_.starts.push_back({job.id, job.attempt, std::move(places)});
  started_.push_back(&job);
}

Draft::Reason Draft::say(std::string why) {
  waiting_.whys.push_back(std::move(why));
  return static_cast<Reason>(waiting_.whys.size() - 1);
}

void Draft::stop(const JobView& gang, std::string why) {
  plan_.stops.push_back({gang.id, gang.attempt, std::move(why)});
}

void Draft::wake_by(Instant when) { plan_.wake = std::min(plan_.wake, when); }

Plan Draft::finish() && {
  std::sort(waiting_.jobs.begin(), waiting_.jobs.end(),
            [](const Waiting::Entry& a, const Waiting::Entry& b) { return a.job < b.job; });
  plan_.waiting = std::make_shared<const Waiting>(std::move(waiting_));
  return std::move(plan_);
}

}  // namespace tutti::sched
