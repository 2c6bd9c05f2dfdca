// A policy as a set of rules for a pass over the queue: what all policies have in common is in pass.cpp.
#pragma once

#include <functional>

#include "control/sched/lineup.hpp"
#include "control/sched/sched.hpp"

namespace tutti::sched {

// Told of each waiting gang when its turn has come; true ends the pass after it.
using LastTurn = std::function<bool(const JobView&)>;

struct Rules {
  OrderOf order;  // among the jobs of one user, or among all of them where nothing is shared
  const NodeChoice* choice = nullptr;
  bool shares = false;    // queues, users and priorities count; else `order` is among all jobs
  bool promises = false;  // the first that cannot start are promised a time and a place
  bool grows = false;     // gangs that run with fewer ranks than they want are restarted with more
  // May the waiting one have the running one stopped? Null: nothing is ever stopped.
  std::function<bool(const Shares&, const JobView& waiting, const JobView& running)> displaces;
  // Which of the running gangs are rather stopped.
  OrderOf stop_order;
  // May the running one, which is smaller, be stopped and start again elsewhere, so that there is room for
  // the waiting one in one piece? Null: nothing is ever moved.
  std::function<bool(const Shares&, const JobView& waiting, const JobView& running)> moves;
  // When this may come out otherwise by itself: asked for each running gang that does not end.
  std::function<Instant(const JobView&)> changes_at;
  LastTurn last_turn;  // null: all have their turn
};

}  // namespace tutti::sched
