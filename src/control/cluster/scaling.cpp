#include "control/cluster/scaling.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::cluster {
namespace {

struct Need {
  std::int32_t replicas = 0;
  std::string why;
};

// Numbers of requests come from outside: what is needed is bounded before it is made a number of replicas.
std::int32_t rounded_up(double replicas) {
  constexpr double most = 1'000'000;
  return static_cast<std::int32_t>(std::ceil(std::clamp(replicas, 0.0, most)));
}

std::string percent(double part) { return std::to_string(std::lround(part * 100)) + "%"; }

std::string requests(std::int64_t count) {
  return count == 1 ? "1 request waits" : std::to_string(count) + " requests wait";
}

std::string short_time(Duration time) {
  return format_duration(std::chrono::round<std::chrono::milliseconds>(time));
}

void raise_to(Need& need, std::int32_t replicas, const std::string& why) {
  if (replicas > need.replicas) need = {replicas, why};
}

// With as many as answer now; before any does nobody knows how much one can do.
Need needed(const Demand& demand, const Bounds& bounds, std::int32_t wanted, const ScaleMemory& memory) {
  const auto ready = static_cast<double>(demand.ready);
  const auto running = static_cast<double>(demand.running);
  if (demand.ready == 0)
    return {std::max(wanted, demand.waiting > 0 ? 1 : 0), demand.waiting > 0 ? requests(demand.waiting) : ""};
  Need need;
  const double each = std::max({running / ready, memory.each, 1.0});
  if (demand.waiting > 0) {
    raise_to(need, rounded_up((running + static_cast<double>(demand.waiting)) / each),
             requests(demand.waiting) + " while " + std::to_string(demand.running) + " run on " +
                 std::to_string(demand.ready));
  } else {
    const bool is_for_one = demand.running > 0 && running <= each;
    const std::int32_t less = is_for_one ? 1 : rounded_up(running / (running_after_less * each));
    raise_to(need, std::min(demand.ready, less), "");
  }
  if (demand.cache_used > cache_used_max) {
    raise_to(need, rounded_up(ready * std::min(demand.cache_used, 1.0) / cache_used_max),
             "the caches of " + std::to_string(demand.ready) + " are used to " + percent(demand.cache_used));
  } else {
    raise_to(need, std::min(demand.ready, rounded_up(ready * demand.cache_used / cache_used_after_less)), "");
  }
  if (bounds.target_ttft > Duration::zero() && demand.ttft_p90 > Duration::zero()) {
    const double times = in_seconds(demand.ttft_p90) / in_seconds(bounds.target_ttft);
    if (times > 1) {
      raise_to(need, rounded_up(ready * std::min(times, 2.0)),
               "first tokens take " + short_time(demand.ttft_p90) + " (p90), and " +
                   short_time(bounds.target_ttft) + " is the target");
    } else if (times > ttft_before_less) {
      raise_to(need, demand.ready, "");
    }
  }
  return need;
}

void remember(std::int32_t replicas, Instant now, ScaleMemory& memory) {
  auto& needed = memory.needed;
  while (!needed.empty() && now - needed.front().first > calm_time) needed.pop_front();
  while (!needed.empty() && needed.back().second <= replicas) needed.pop_back();
  needed.emplace_back(now, replicas);
}

}  // namespace

Scaling decide(const Demand& demand, const Bounds& bounds, std::int32_t wanted, Instant now,
               ScaleMemory& memory) {
  const auto within = [&](std::int32_t replicas) {
    return std::clamp(replicas, bounds.replicas_min, bounds.replicas_max);
  };
  Scaling as_before{within(wanted), ""};
  if (!demand.known) {
    memory = {};
    return as_before;
  }
  if (memory.since == Instant() || now < memory.since) memory = ScaleMemory{now, now, {}, 0, {}};
  const bool is_asked = demand.waiting + demand.running > 0;
  if (is_asked) memory.asked_at = now;
  if (demand.waiting == 0 && demand.ready > 0)
    memory.each = std::max(memory.each, static_cast<double>(demand.running) / demand.ready);

  const bool is_idle = !is_asked && bounds.idle_time > Duration::zero() && bounds.replicas_min == 0 &&
                       now - memory.asked_at >= bounds.idle_time;
  Need need = needed(demand, bounds, as_before.wanted, memory);
  // The last one goes when nobody has asked for long, and not when it is calm for a minute.
  if (as_before.wanted > 0) need.replicas = std::max(need.replicas, 1);
  need.replicas = within(need.replicas);
  remember(need.replicas, now, memory);

  if (as_before.wanted == 0) {
    if (need.replicas > 0) memory.raised_at = now;
    return need.replicas == 0 ? as_before : Scaling{1, need.why};
  }
  if (is_idle) return {0, "nobody has asked for " + format_duration(bounds.idle_time)};
  if (need.replicas > as_before.wanted) {
    if (memory.raised_at != Instant() && now - memory.raised_at < raised_every) return as_before;
    memory.raised_at = now;
    return {std::min(need.replicas, 2 * as_before.wanted), need.why};
  }
  const std::int32_t highest = memory.needed.front().second;
  if (highest < as_before.wanted && now - memory.since >= calm_time)
    return {highest, "no more were needed for " + format_duration(calm_time)};
  return as_before;
}

Instant decide_again_at(const Bounds& bounds, std::int32_t wanted, const ScaleMemory& memory) {
  Instant at = Instant::max();
  if (memory.since == Instant() || memory.needed.empty()) return at;
  const std::int32_t newest = memory.needed.back().second;
  if (newest > wanted && memory.raised_at != Instant()) at = memory.raised_at + raised_every;
  if (newest < wanted) {
    const auto& [highest_at, highest] = memory.needed.front();
    at = std::min(at, highest < wanted ? memory.since + calm_time : highest_at + calm_time + 1ms);
  }
  if (bounds.replicas_min == 0 && wanted > 0 && bounds.idle_time > Duration::zero())
    at = std::min(at, memory.asked_at + bounds.idle_time);
  return at;
}

}  // namespace tutti::cluster
