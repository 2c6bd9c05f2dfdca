#include "control/sched/making_way.hpp"

#include <algorithm>
#include <utility>

namespace tutti::sched {
namespace {

// It is not looked for more often in one pass, so that the pass stays short when a full cluster has a long
// queue.
constexpr int ways_tried_max = 64;
constexpr std::size_t gangs_looked_at_max = 2'000'000;

// When it has left its room if it is told now, or was told before.
Instant left_by(const JobView& gang, Instant now) {
  return gang.ending ? release_of(gang, now) : now + gang.grace;
}

// In coarse steps, each twice the one before: who takes about as long goes by the policy's order.
int steps_of(Duration time) {
  int steps = 0;
  for (; time > soon_max; time /= 2) ++steps;
  return steps;
}

bool look_at_one_more(std::size_t& looked_at) {
  if (looked_at == gangs_looked_at_max) return false;
  ++looked_at;
  return true;
}

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

void MakingWay::sort_out(Instant now) {
  if (std::exchange(sorted_out_, true)) return;
  for (const JobView* gang : snapshot_.running) {
    if (!ends_soon(*gang, now)) {
      slow_.push_back(gang);
      if (gang->ending) later_.emplace(gang->id, gang);
    } else if (!gang->ending) {
      victims_.push_back(gang);
    }
  }
  victims_ = sorted(std::move(victims_), rules_.stop_order);
  slow_ = sorted(std::move(slow_), rules_.stop_order);
  const auto key = [now](const JobView* gang) {
    return std::pair(steps_of(left_by(*gang, now) - now), !gang->ending);
  };
  std::stable_sort(slow_.begin(), slow_.end(),
                   [&](const JobView* a, const JobView* b) { return key(a) < key(b); });
}

bool MakingWay::may_stop(const Claims& claims, const Shares& shares, const JobView& job,
                         const JobView& gang) const {
  return !claims.stopped(gang) && rules_.displaces(shares, job, gang);
}

// Where only few make way, whether that is enough is asked after each of them; of many, each time there are
// twice as many: to place a large gang takes its time, and a full cluster runs a hundred thousand.
std::optional<Way> MakingWay::displace(Claims& claims, const Shares& shares, const JobView& job) {
  const std::int32_t ranks = counts_of(*job.shape).back();
  Room trial = claims.soon_for(job);
  if (auto places = place(trial, *job.shape, ranks, *rules_.choice))
    return Way{Way::Kind::ends_already, {}, std::move(*places)};
  sort_out(claims.now());
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
  for (const JobView* victim : victims_) {
    if (!look_at_one_more(looked_at_)) break;
    if (!may_stop(claims, shares, job, *victim)) continue;
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

std::optional<LongWay> MakingWay::find_long(Claims& claims, const Shares& shares, const JobView& job) {
  const Alike alike{job.shape_class, job.queue, job.priority, job.user};
  if (!rules_.displaces || long_tried_ == ways_tried_max || long_in_vain_.contains(alike))
    return std::nullopt;
  sort_out(claims.now());
  if (slow_.empty()) return std::nullopt;
  ++long_tried_;
  auto way = wait_soonest(claims, shares_then(shares), job);
  if (!way) long_in_vain_.insert(alike);
  return way;
}

void MakingWay::promised(const LongWay& way, const JobView& job) {
  for (const JobView* gang : way.gangs) later_.emplace(gang->id, gang);
  for (const JobView* gang : way.others) later_.emplace(gang->id, gang);
  later_.emplace(job.id, &job);
}

Shares MakingWay::shares_then(Shares shares) const {
  for (const auto& [id, job] : later_)
    shares.add(*job, job->places.slots.empty() ? least_share(*job) : -held_share(*job));
  return shares;
}

bool MakingWay::holds(const Room& trial, const JobView& job) const {
  const std::int32_t ranks = counts_of(*job.shape).back();
  return may_hold(trial, *job.shape, ranks) && place(trial, *job.shape, ranks, *rules_.choice).has_value();
}

// Those that end soon when they are told are not told yet: their room would stay empty meanwhile.
std::optional<LongWay> MakingWay::wait_soonest(Claims& claims, const Shares& then, const JobView& job) {
  const std::int64_t allowed = rules_.shares ? then.allowed(job) : no_limit;
  if (allowed != no_limit && least_share(job) > allowed) return std::nullopt;
  Room without = claims.unpromised_soon();
  Room with = without;
  for (const JobView* victim : victims_) {
    if (!look_at_one_more(long_looked_at_)) break;
    if (may_stop(claims, then, job, *victim)) with.give(*victim->shape, victim->places);
  }
  // It was not looked for in this pass, and nobody need take long for it.
  if (holds(without, job) || holds(with, job)) return std::nullopt;
  auto alone = wait_long(std::move(without), claims, then, job);
  auto together = wait_long(std::move(with), claims, then, job);
  if (!alone || !together) return alone ? std::move(alone) : std::move(together);
  const auto key = [](const LongWay& way) { return std::pair(way.start, way.gangs.size()); };
  return key(*together) < key(*alone) ? std::move(together) : std::move(alone);
}

std::optional<LongWay> MakingWay::wait_long(Room trial, const Claims& claims, const Shares& shares,
                                            const JobView& job) {
  const std::int32_t ranks = counts_of(*job.shape).back();
  // One that was told for another leaves what that one does not take.
  const auto ends_anyway = [&](const JobView& gang) { return gang.ending || claims.stopped(gang); };
  std::vector<const JobView*> chosen;
  std::size_t tries = 0;
  for (const JobView* gang : slow_) {
    if (!look_at_one_more(long_looked_at_) || tries == gangs_tried_singly_max) break;
    if (!ends_anyway(*gang) && !may_stop(claims, shares, job, *gang)) continue;
    trial.give(*gang->shape, gang->places);
    chosen.push_back(gang);
    if (!may_hold(trial, *job.shape, ranks)) continue;
    ++tries;
    auto places = place(trial, *job.shape, ranks, *rules_.choice);
    if (!places) continue;
    Way way{Way::Kind::makes_way, std::move(chosen), std::move(*places)};
    spare_the_unneeded(way, job, std::move(trial), *rules_.choice);
    LongWay found;
    found.places = std::move(way.places);
    for (const JobView* needed : way.gangs) {
      const Instant end = left_by(*needed, claims.now());
      if (found.last != nullptr && end <= found.start) continue;
      found.start = end;
      found.last = needed;
    }
    // Who has left long before the last one would be started again in its own room, and told again.
    for (const JobView* needed : way.gangs) {
      if (ends_anyway(*needed)) continue;
      const bool at_once = left_by(*needed, claims.now()) + soon_max >= found.start;
      (at_once ? found.gangs : found.others).push_back(needed);
    }
    return found;
  }
  return std::nullopt;
}

}  // namespace tutti::sched
