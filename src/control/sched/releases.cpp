#include "control/sched/releases.hpp"

#include <algorithm>

namespace tutti::sched {
namespace {

// No more ends than these are looked at for one gang, so that the pass stays short when a full cluster has a
// long queue.
constexpr int ends_tried_max = 256;

}  // namespace

// Those that run are read once, those that start as the pass goes on.
void Releases::catch_up(const Claims& claims, const Draft& draft) {
  if (!all_) {
    all_.emplace();
    for (const JobView* job : snapshot_.running) {
      if (!claims.stopped(*job)) all_->push_back({release_of(*job, now_), job, std::nullopt});
    }
  } else if (starts_seen_ == draft.starts().size()) {
    return;
  }
  for (; starts_seen_ < draft.starts().size(); ++starts_seen_) {
    const JobView& job = draft.started(starts_seen_);
    all_->push_back({expected_end(job, now_, now_), &job, starts_seen_});
  }
  std::stable_sort(all_->begin(), all_->end(),
                   [](const Release& a, const Release& b) { return a.when < b.when; });
}

std::optional<Promise> Releases::find(const Claims& claims, const Draft& draft, const JobView& job,
                                      const NodeChoice& choice) {
  catch_up(claims, draft);
  // A room is copied for nothing where no end is known.
  if (all_->empty() || all_->front().when == never) return std::nullopt;
  const std::int32_t ranks = counts_of(*job.shape).back();
  Room later = claims.unpromised();
  int tries = 0;
  for (auto next = all_->begin(); next != all_->end() && tries < ends_tried_max;) {
    const Instant when = next->when;
    if (when == never) break;
    for (; next != all_->end() && next->when == when; ++next)
      later.give(*next->job->shape, next->start ? draft.starts()[*next->start].places : next->job->places);
    if (!may_hold(later, *job.shape, ranks)) continue;
    ++tries;
    if (auto places = place(later, *job.shape, ranks, choice))
      return Promise{job.id, when, std::move(*places)};
  }
  return std::nullopt;
}

}  // namespace tutti::sched
