// How room is made for a waiting gang: which running gangs end, and where it will go. Plain data.
#pragma once

#include <vector>

#include "control/sched/sched.hpp"

namespace tutti::sched {

struct Way {
  enum class Kind {
    ends_already,  // what is ending anyway is enough
    makes_way,     // gangs are stopped and go back into the queue
    moves,         // the same, and there is room for them elsewhere
  };
  Kind kind = Kind::ends_already;
  std::vector<const JobView*> gangs;  // to be stopped
  Places places;                      // of the waiting one, with the fewest ranks that it does with
};

// Room for it takes longer to be made than room is kept empty: it is promised.
struct LongWay {
  std::vector<const JobView*> gangs;   // those that take long and are to be told now
  std::vector<const JobView*> others;  // that take long, too, and are told in time; quick ones, at the end
  Instant start;                       // at the latest
  const JobView* last = nullptr;       // whose end that is
  Places places;
};

// Up to so many gangs it is asked for each of them whether it is needed.
constexpr std::size_t gangs_tried_singly_max = 64;

// Whoever was chosen and is not needed after all goes on, the last first. `trial` is the room when all of
// them have ended.
void spare_the_unneeded(Way& way, const JobView& job, Room trial, const NodeChoice& choice);

}  // namespace tutti::sched
