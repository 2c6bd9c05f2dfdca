#include "control/sched/making_way.hpp"

namespace tutti::sched {
namespace {

// It is not looked for more often in one pass, so that the pass stays short when a full cluster has a long
// queue.
constexpr int ways_tried_max = 64;

}  // namespace

std::optional<Way> MakingWay::find(Claims& claims, const Shares& shares, const JobView& job) {
  const Alike alike{job.shape_class, job.queue, job.priority, job.user};
  if (!rules_.displaces || tried_ == ways_tried_max || in_vain_.contains(alike)) return std::nullopt;
  ++tried_;
  if (auto way = displace(claims, shares, job)) return way;
  if (auto way = moving_.find(claims, shares, job)) return way;
  in_vain_.insert(alike);
  return std::nullopt;
}

const std::vector<const JobView*>& MakingWay::victims() {
  if (victims_) return *victims_;
  std::vector<const JobView*> gangs;
  for (const JobView* gang : snapshot_.running) {
    if (!gang->ending) gangs.push_back(gang);
  }
  return victims_.emplace(sorted(std::move(gangs), rules_.stop_order));
}

std::optional<Way> MakingWay::displace(Claims& claims, const Shares& shares, const JobView& job) {
  const std::int32_t ranks = counts_of(*job.shape).back();
  Room trial = claims.soon_for(job);
  if (auto places = place(trial, *job.shape, ranks, *rules_.choice))
    return Way{Way::Kind::ends_already, {}, std::move(*places)};
  std::vector<const JobView*> chosen;
  for (const JobView* victim : victims()) {
    if (claims.stopped(*victim) || !rules_.displaces(shares, job, *victim)) continue;
    trial.give(*victim->shape, victim->places);
    chosen.push_back(victim);
    if (auto places = place(trial, *job.shape, ranks, *rules_.choice)) {
      Way way{Way::Kind::makes_way, std::move(chosen), std::move(*places)};
      spare_the_unneeded(way, job, std::move(trial), *rules_.choice);
      return way;
    }
  }
  return std::nullopt;
}

}  // namespace tutti::sched
