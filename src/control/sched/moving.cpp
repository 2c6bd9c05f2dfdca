#include "control/sched/moving.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace tutti::sched {
namespace {

// No more nodes than these are looked at for one gang, so that the pass stays short.
constexpr std::size_t clearings_tried_max = 64;
// And no more gangs than these are moved for it: a place is looked for each of them.
constexpr std::size_t moved_max = 128;

}  // namespace

const std::vector<Moving::Clearing>& Moving::clearings() {
  if (clearings_) return *clearings_;
  std::vector<Clearing> nodes(at(snapshot_.room.nodes()));
  for (const JobView* running : snapshot_.running) {
    // One that runs with fewer ranks than it wants would come back with more; for one that takes long to end
    // the room elsewhere would stay empty as long.
    const bool moves = !running->ending && running->yields && running->grace <= soon_max &&
                       running->places.slots.size() == 1 && running->places.ranks() == running->shape->ranks;
    for (const Places::Slot& slot : running->places.slots) {
      Clearing& here = nodes[at(slot.node)];
      here.fixed = here.fixed || !moves;
      if (here.fixed) continue;
      here.devices += devices_of(*running);
      here.gangs.push_back(running);
    }
  }
  std::erase_if(nodes, [](const Clearing& node) { return node.fixed || node.gangs.empty(); });
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Clearing& a, const Clearing& b) { return a.devices < b.devices; });
  return clearings_.emplace(std::move(nodes));
}

// All of them, for the sake of the job: they are smaller, and the rules let them.
bool Moving::may_move(const Clearing& clearing, const Claims& claims, const Shares& shares,
                      const JobView& job) const {
  return std::all_of(clearing.gangs.begin(), clearing.gangs.end(), [&](const JobView* gang) {
    return !claims.stopped(*gang) && held_share(*gang) < least_share(job) && rules_.moves(shares, job, *gang);
  });
}

bool Moving::all_fit(const Way& way, const Claims& claims, const JobView& job) const {
  Room room = claims.unpromised();
  for (const JobView* gang : way.gangs) room.give(*gang->shape, gang->places);
  if (!room.fits(*job.shape, way.places)) return false;
  room.take(*job.shape, way.places);
  std::vector<const JobView*> largest_first = way.gangs;
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [](const JobView* a, const JobView* b) { return devices_of(*a) > devices_of(*b); });
  for (const JobView* gang : largest_first) {
    const auto places = place(room, *gang->shape, gang->places.ranks(), *rules_.choice);
    if (!places) return false;
    room.take(*gang->shape, *places);
  }
  return true;
}

std::optional<Way> Moving::find(Claims& claims, const Shares& shares, const JobView& job) {
  if (!rules_.moves || claims.goes_around(job)) return std::nullopt;
  const std::int32_t ranks = counts_of(*job.shape).back();
  Room trial = claims.soon_for(job);
  std::vector<const JobView*> chosen;
  const auto& nodes = clearings();
  for (std::size_t tried = 0; tried < std::min(nodes.size(), clearings_tried_max); ++tried) {
    const Clearing& clearing = nodes[tried];
    if (!may_move(clearing, claims, shares, job)) continue;
    for (const JobView* gang : clearing.gangs) trial.give(*gang->shape, gang->places);
    chosen.insert(chosen.end(), clearing.gangs.begin(), clearing.gangs.end());
    if (!may_hold(trial, *job.shape, ranks)) continue;
    auto places = place(trial, *job.shape, ranks, *rules_.choice);
    if (!places) continue;
    Way way{Way::Kind::moves, std::move(chosen), std::move(*places)};
    spare_the_unneeded(way, job, std::move(trial), *rules_.choice);
    if (way.gangs.size() > moved_max || !all_fit(way, claims, job)) return std::nullopt;
    return way;
  }
  return std::nullopt;
}

}  // namespace tutti::sched
