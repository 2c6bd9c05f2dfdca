#include "control/sched/making_way.hpp"

namespace tutti::sched {
namespace {

// It is not looked for more often in one pass, so that the pass stays short when a full cluster has a long
// queue.
constexpr int ways_tried_max = 64;
constexpr std::size_t gangs_looked_at_max = 2'000'000;

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

// Where only few make way, whether that is enough is asked after each of them; of many, each time there are
// twice as many: to place a large gang takes its time, and a full cluster runs a hundred thousand.
std::optional<Way> MakingWay::displace(Claims& claims, const Shares& shares, const JobView& job) {
  const std::int32_t ranks = counts_of(*job.shape).back();
  Room trial = claims.soon_for(job);
  if (auto places = place(trial, *job.shape, ranks, *rules_.choice))
    return Way{Way::Kind::ends_already, {}, std::move(*places)};
  std::vector<const JobView*> chosen;
  std::size_t too_few = 0;  // so many of them are known not to be enough
  const auto enough = [&]() -> std::optional<Places> {
    if (chosen.size() == too_few) return std::nullopt;
    auto places =
        may_hold(trial, *job.shape, ranks) ? place(trial, *job.shape, ranks, *rules_.choice) : std::nullopt;
    if (!places) too_few = chosen.size();
    return places;
  };
  std::optional<Places> places;
  for (const JobView* victim : victims()) {
    if (looked_at_ == gangs_looked_at_max) break;
    ++looked_at_;
    if (claims.stopped(*victim) || !rules_.displaces(shares, job, *victim)) continue;
    trial.give(*victim->shape, victim->places);
    chosen.push_back(victim);
    if (chosen.size() > gangs_tried_singly_max && chosen.size() < 2 * too_few) continue;
    if ((places = enough())) break;
  }
  if (!places && !(places = enough())) return std::nullopt;
  return fewest(std::move(trial), job, std::move(chosen), too_few, std::move(*places));
}

Way MakingWay::fewest(Room trial, const JobView& job, std::vector<const JobView*> chosen, std::size_t too_few,
                      Places places) const {
  const std::int32_t ranks = counts_of(*job.shape).back();
  std::size_t ended = chosen.size();  // in `trial`
  const auto end_only = [&](std::size_t count) {
    for (; ended > count; --ended) trial.take(*chosen[ended - 1]->shape, chosen[ended - 1]->places);
    for (; ended < count; ++ended) trial.give(*chosen[ended]->shape, chosen[ended]->places);
  };
  for (std::size_t enough = ended; enough - too_few > 1;) {
    const std::size_t half = too_few + (enough - too_few) / 2;
    end_only(half);
    auto found =
        may_hold(trial, *job.shape, ranks) ? place(trial, *job.shape, ranks, *rules_.choice) : std::nullopt;
    if (found) {
      enough = half;
      places = std::move(*found);
    } else {
      too_few = half;
    }
    if (enough - too_few == 1) end_only(enough);
  }
  chosen.resize(ended);
  Way way{Way::Kind::makes_way, std::move(chosen), std::move(places)};
  spare_the_unneeded(way, job, std::move(trial), *rules_.choice);
  return way;
}

}  // namespace tutti::sched
