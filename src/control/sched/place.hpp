// Where a gang goes in a room: into the smallest part of the fabric that holds it, packed into few nodes, so
// that larger parts stay whole for larger gangs. Pure functions: any thread.
#pragma once

#include <optional>

#include "control/sched/room.hpp"

namespace tutti::sched {

// Which node takes a gang that fits on one: the policies differ here.
class NodeChoice {
 public:
  NodeChoice() = default;
  NodeChoice(const NodeChoice&) = delete;
  NodeChoice& operator=(const NodeChoice&) = delete;
  virtual ~NodeChoice() = default;

  // A node with room for so many ranks, or nothing.
  virtual std::optional<NodeIndex> choose(const Room& room, const Need& need, std::int32_t ranks) const = 0;
  // The devices there, appended; by default as the room chooses.
  virtual void devices(const Room& room, const Need& need, NodeIndex node, std::int32_t ranks,
                       std::vector<std::int16_t>& devices) const {
    room.choose_devices(need, node, ranks, devices);
  }
};

// The node that is left with the fewest whole devices, in the fullest part of the fabric.
class TightestNode final : public NodeChoice {
 public:
  std::optional<NodeIndex> choose(const Room& room, const Need& need, std::int32_t ranks) const override;
};

// Places one gang of a sound shape, with the largest of its counts that fits, and takes nothing. Fewer ranks
// take in proportion fewer nodes where the shape names a number of nodes.
std::optional<Places> place(const Room& room, const Shape& shape, const NodeChoice& choice);
std::optional<Places> place(const Room& room, const Shape& shape, std::int32_t ranks,
                            const NodeChoice& choice);

// False if so many ranks cannot fit, told from the sums alone.
bool may_hold(const Room& room, const Shape& shape, std::int32_t ranks);

// Why it does not fit: "needs 16 ranks of 1 GPU; 2 nodes take work, 8 matching GPUs are free, …".
std::string describe_refusal(const Room& room, const Shape& shape);

}  // namespace tutti::sched
