// best-fit. Like fifo, and a gang that fits on one node goes to the one that is left with the least of
// everything: the sum of what remains of GPUs, CPUs and memory, each as a part of the largest node's. Assumes
// that a tight fit today is a good fit tomorrow.
#include <algorithm>

#include "control/sched/policies.hpp"

namespace tutti::sched {
namespace {

class LeastLeft final : public NodeChoice {
 public:
  std::optional<NodeIndex> choose(const Room& room, const Need& need, std::int32_t ranks) const override {
    std::int64_t shares = 1;
    std::int64_t cpus = 1;
    std::int64_t memory = 1;
    for (NodeIndex node = 0; node < room.nodes(); ++node) {
      shares = std::max<std::int64_t>(shares, std::int64_t{room.device_count(node)} * whole_share);
      cpus = std::max<std::int64_t>(cpus, room.cpus_free(node));
      memory = std::max(memory, room.memory_free(node));
    }
    std::optional<NodeIndex> best;
    double best_left = 0;
    for (NodeIndex node = 0; node < room.nodes(); ++node) {
      if (room.capacity(need, node, ranks) < ranks) continue;
      std::int64_t share = 0;
      for (const std::int16_t free : room.shares_free(node)) share += free;
      const auto part = [](std::int64_t left, std::int64_t of) {
        return static_cast<double>(left) / static_cast<double>(of);
      };
      const double left =
          part(share, shares) + part(room.cpus_free(node), cpus) + part(room.memory_free(node), memory);
      if (!best || left < best_left) best = node, best_left = left;
    }
    return best;
  }
};

}  // namespace

Plan schedule_best_fit(const Snapshot& snapshot, Instant now) {
  const LeastLeft least_left;
  return run_pass(snapshot, now, {.order = as_they_came, .choice = &least_left});
}

}  // namespace tutti::sched
