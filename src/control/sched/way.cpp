#include "control/sched/way.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace tutti::sched {
namespace {

// The part of the places that is on the nodes of the gang.
class Overlap {
 public:
  explicit Overlap(const Places& places) : places_(places) {
    const std::size_t all = at(std::max(places.ranks(), 1));
    const std::size_t each = places.devices.size() / all;
    std::size_t next = 0;
    for (const Places::Slot& slot : places.slots) {
      first_.push_back(next);
      next += each * at(slot.ranks);
    }
    first_.push_back(next);
  }

  Places with(const Places& gang) const {
    Places part;
    for (const Places::Slot& slot : gang.slots) {
      const auto found =
          std::lower_bound(places_.slots.begin(), places_.slots.end(), slot.node,
                           [](const Places::Slot& known, NodeIndex node) { return known.node < node; });
      if (found == places_.slots.end() || found->node != slot.node) continue;
      const auto index = at(found - places_.slots.begin());
      part.slots.push_back(*found);
      part.devices.insert(part.devices.end(),
                          places_.devices.begin() + static_cast<std::ptrdiff_t>(first_[index]),
                          places_.devices.begin() + static_cast<std::ptrdiff_t>(first_[index + 1]));
    }
    return part;
  }

 private:
  const Places& places_;
  std::vector<std::size_t> first_;  // by slot: where its devices begin
};

// Those that leave room which the job does not use where it goes: told without placing it again.
void spare_those_beside(Way& way, const JobView& job, Room& trial) {
  const Overlap overlap(way.places);
  std::vector<const JobView*> needed;
  for (auto gang = way.gangs.rbegin(); gang != way.gangs.rend(); ++gang) {
    const Places part = overlap.with((*gang)->places);
    trial.take(*(*gang)->shape, (*gang)->places);
    if (part.slots.empty() || trial.fits(*job.shape, part)) continue;
    trial.give(*(*gang)->shape, (*gang)->places);
    needed.push_back(*gang);
  }
  way.gangs.assign(needed.rbegin(), needed.rend());
}

}  // namespace

void spare_the_unneeded(Way& way, const JobView& job, Room trial, const NodeChoice& choice) {
  if (way.gangs.size() > gangs_tried_singly_max) spare_those_beside(way, job, trial);
  const std::int32_t ranks = counts_of(*job.shape).back();
  std::size_t tried = 0;
  for (std::size_t left = way.gangs.size();
       left-- > 0 && way.gangs.size() > 1 && tried < gangs_tried_singly_max; ++tried) {
    const JobView& gang = *way.gangs[left];
    trial.take(*gang.shape, gang.places);
    if (auto without = place(trial, *job.shape, ranks, choice)) {
      way.places = std::move(*without);
      way.gangs.erase(way.gangs.begin() + static_cast<std::ptrdiff_t>(left));
    } else {
      trial.give(*gang.shape, gang.places);
    }
  }
}

}  // namespace tutti::sched
