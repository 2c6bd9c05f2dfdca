// What was measured between nodes, each direction of each pair. Plain data: any thread.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/time.hpp"
#include "base/units.hpp"
#include "control/sched/shape.hpp"

namespace tutti::sched {

struct Link {
  NodeName from;
  NodeName to;
  Duration latency{};  // one way
  Bytes bandwidth;     // a second
  Instant measured_at;

  friend bool operator==(const Link&, const Link&) = default;
};

// By from and to.
using Fabric = std::map<std::pair<NodeName, NodeName>, Link>;

}  // namespace tutti::sched
