// How many replicas a service wants: up at once with what it is asked for, down only when that has been less
// for a while, to none when nobody has asked for long. Pure functions.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "base/time.hpp"

namespace tutti::cluster {

// At most twice as many within this time: those that start have an answer ready before still more do.
constexpr Duration raised_every = 5s;
// Fewer only after so long in which fewer would have been enough.
constexpr Duration calm_time = 1min;
// Of the caches of its replicas, so much is to be used at most; and so much before there are fewer.
constexpr double cache_used_max = 0.8;
constexpr double cache_used_after_less = 0.6;
// Of what replicas have run at once with nobody waiting, so much is to be run by fewer.
constexpr double running_after_less = 0.8;
// Fewer only if first tokens take no more than this part of the time that is the target.
constexpr double ttft_before_less = 0.5;

// What a service is asked for, by all gateways together.
struct Demand {
  bool known = false;  // some gateway tells of it
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  double cache_used = 0;   // the mean of its replicas, 0 to 1
  Duration ttft_p90{};     // lately; zero: nobody knows
  std::int32_t ready = 0;  // replicas

  friend bool operator==(const Demand&, const Demand&) = default;
};

struct Bounds {
  std::int32_t replicas_min = 1;
  std::int32_t replicas_max = 1;
  Duration idle_time{};    // then none, where the least is 0
  Duration target_ttft{};  // zero: there is none
};

struct ScaleMemory {
  Instant since;      // it knows nothing of before; zero: nothing at all
  Instant asked_at;   // when it was last asked for something, or `since`
  Instant raised_at;  // zero: never
  double each = 0;    // the most that each replica has run at once while nobody waited
  // What was needed within the last calm_time, as far as nothing that came later was as much.
  std::deque<std::pair<Instant, std::int32_t>> needed = {};

  friend bool operator==(const ScaleMemory&, const ScaleMemory&) = default;
};

struct Scaling {
  std::int32_t wanted = 0;
  std::string why = {};  // with its numbers; "" if it is as before
};

// `wanted` until now. Where no gateway tells of it nothing changes: it may be the controller that is cut off.
Scaling decide(const Demand& demand, const Bounds& bounds, std::int32_t wanted, Instant now,
               ScaleMemory& memory);
// When it is to be decided again although nothing was told; Instant::max() if never.
Instant decide_again_at(const Bounds& bounds, std::int32_t wanted, const ScaleMemory& memory);

}  // namespace tutti::cluster
