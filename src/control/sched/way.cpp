#include "control/sched/way.hpp"

namespace tutti::sched {

void spare_the_unneeded(Way& way, const JobView& job, Room trial, const NodeChoice& choice) {
  const std::int32_t ranks = counts_of(*job.shape).back();
  for (std::size_t left = way.gangs.size(); left-- > 0 && way.gangs.size() > 1;) {
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
