#include "control/sched/fitting.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace tutti::sched {

std::optional<Places> place_allowed(const Room& room, const JobView& job, std::int64_t allowed,
                                    const NodeChoice& choice) {
  for (const std::int32_t ranks : counts_of(*job.shape)) {
    if (allowed != no_limit && share_with(job, ranks) > allowed) continue;
    if (auto places = place(room, *job.shape, ranks, choice)) return places;
  }
  return std::nullopt;
}

std::optional<Places> Fitting::find(const Claims& claims, const JobView& job, std::int64_t allowed) {
  Refusal& refusal = refusals_[at(job.shape_class)];
  const auto counts = counts_of(*job.shape);
  // They descend: a limit of the job's own leaves the last ones.
  std::size_t first = 0;
  while (allowed != no_limit && first < counts.size() && share_with(job, counts[first]) > allowed) ++first;
  const bool around = claims.goes_around(job);
  if (first == counts.size() || first >= (around ? refusal.unpromised : refusal.free)) return std::nullopt;
  auto places = place_allowed(claims.free_for(job), job, allowed, choice_);
  if (!places) {
    refusal.unpromised = std::min(refusal.unpromised, first);
    if (!around) refusal.free = std::min(refusal.free, first);
  }
  return places;
}

Draft::Reason Fitting::why(const Claims& claims, const JobView& job, Draft& draft) {
  Refusal& refusal = refusals_[at(job.shape_class)];
  const bool promised = claims.goes_around(job) && refusal.free == none;
  auto& why = promised ? refusal.why_promised : refusal.why;
  if (!why) why = draft.say(promised ? describe_promised(claims, job, draft) : describe(claims, job));
  return *why;
}

// `tutti explain` counts for the one that is asked for.
std::string Fitting::describe(const Claims& claims, const JobView& job) {
  if (shapes_counted_ == shapes_counted_max)
    return "needs " + describe_need(*job.shape) + "; there is no room for it now";
  ++shapes_counted_;
  return describe_refusal(claims.free(), *job.shape);
}

// There may be room that is only promised to another.
std::string Fitting::describe_promised(const Claims& claims, const JobView& job, const Draft& draft) {
  if (!place(claims.free(), *job.shape, counts_of(*job.shape).back(), choice_)) return describe(claims, job);
  const auto& promises = draft.promises();
  const auto first = std::min_element(promises.begin(), promises.end(),
                                      [](const Promise& a, const Promise& b) { return a.start < b.start; });
  return std::string("the room for it is promised to ") + (promises.size() > 1 ? "others, first to " : "") +
         "job " + first->job.text() + " at " + format_instant(first->start) +
         ", and it is not known to be over by then";
}

}  // namespace tutti::sched
