// The default choice of a node: where the least becomes useless for what gangs ask for in this cluster.
#pragma once

#include "control/sched/mix.hpp"
#include "control/sched/place.hpp"

namespace tutti::sched {

class LeastWaste final : public NodeChoice {
 public:
  // The mix must outlive it.
  explicit LeastWaste(const Mix& mix) : mix_(mix) {}

  std::optional<NodeIndex> choose(const Room& room, const Need& need, std::int32_t ranks) const override;
  void devices(const Room& room, const Need& need, NodeIndex node, std::int32_t ranks,
               std::vector<std::int16_t>& devices) const override;

 private:
  std::optional<NodeIndex> best_of(const Room& room, const Need& need, std::int32_t ranks, NodeIndex first,
                                   NodeIndex last) const;
  double growth(const Room& room, const Need& need, NodeIndex node, std::int32_t ranks) const;
  // The device whose hole becomes least wasteful, and what that adds.
  std::pair<std::int32_t, double> best_device(const Room& room, const Need& need, NodeIndex node,
                                              std::span<const std::int16_t> left) const;

  const Mix& mix_;
  TightestNode tightest_;
};

}  // namespace tutti::sched
