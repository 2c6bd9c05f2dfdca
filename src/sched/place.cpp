#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "sched/sched.hpp"

namespace tutti::sched {
namespace {

constexpr std::int32_t unlimited = std::numeric_limits<std::int32_t>::max();

// Descending. The shape must outlive them.
std::span<const std::int32_t> counts_of(const Shape& shape) {
  if (shape.rank_counts.empty()) return {&shape.ranks, 1};
  return shape.rank_counts;
}

// Rounded up, so that no node has to take more ranks of a smaller gang than of the whole one.
std::int32_t nodes_for(const Shape& shape, std::int32_t ranks) {
  const std::int64_t of_whole = std::int64_t{shape.nodes} * ranks;
  return static_cast<std::int32_t>((of_whole + shape.ranks - 1) / shape.ranks);
}

bool matches(const Shape& shape, const DeviceView& device) {
  return (shape.gpu_model.empty() || device.model == shape.gpu_model) && device.memory >= shape.gpu_memory;
}

std::int32_t ranks_by_devices(const Shape& shape, const NodeView& node) {
  if (shape.gpu_share == 0) return unlimited;
  std::int32_t ranks = 0;
  std::int32_t whole = 0;
  for (const DeviceView& device : node.devices) {
    if (!matches(shape, device)) continue;
    if (device.share_free == whole_share) ++whole;
    if (shape.gpu_share < whole_share) ranks += device.share_free / shape.gpu_share;
  }
  return shape.gpu_share < whole_share ? ranks : whole / (shape.gpu_share / whole_share);
}

// How many ranks of this shape the node can take now; more than the gang has, so that a tight node can be
// told from a roomy one.
std::int32_t capacity(const Shape& shape, const NodeView& node) {
  std::int32_t ranks = ranks_by_devices(shape, node);
  if (shape.cpus > 0) ranks = std::min(ranks, node.cpus_free / shape.cpus);
  if (shape.memory.count() > 0) {
    ranks = static_cast<std::int32_t>(
        std::min<std::int64_t>(ranks, node.memory_free.count() / shape.memory.count()));
  }
  if (ranks == unlimited) ranks = shape.ranks;
  return shape.ranks_per_node > 0 ? std::min(ranks, shape.ranks_per_node) : ranks;
}

struct Slot {
  std::size_t node = 0;
  std::int32_t ranks = 0;  // how many it could take, and then how many it gets
};

// In the order in which a gang takes them: the fuller nodes first where it asks for a number of nodes, so
// that empty ones stay whole, and otherwise the roomier ones.
std::vector<Slot> find_slots(const Shape& shape, const std::vector<NodeView>& nodes) {
  std::vector<Slot> slots;
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    const std::int32_t ranks = capacity(shape, nodes[at]);
    if (ranks > 0) slots.push_back({at, ranks});
  }
  if (shape.nodes > 0) {
    std::ranges::stable_sort(slots, std::less(), &Slot::ranks);
  } else {
    std::ranges::stable_sort(slots, std::greater(), &Slot::ranks);
  }
  return slots;
}

// Exactly so many nodes, the ranks spread evenly.
std::vector<Slot> spread(const std::vector<Slot>& slots, std::int32_t ranks, std::int32_t nodes) {
  const std::int32_t most = (ranks + nodes - 1) / nodes;
  const auto first = std::ranges::lower_bound(slots, most, std::less(), &Slot::ranks);
  if (slots.end() - first < nodes) return {};
  std::vector<Slot> chosen(first, first + nodes);
  for (std::int32_t at = 0; at < nodes; ++at)
    chosen[static_cast<std::size_t>(at)].ranks = ranks / nodes + (at < ranks % nodes ? 1 : 0);
  return chosen;
}

// As few nodes as fit: the roomiest ones until the rest of the gang fits into one, and for that the tightest.
std::vector<Slot> pack(const std::vector<Slot>& slots, std::int32_t ranks) {
  std::vector<Slot> chosen;
  std::int32_t left = ranks;
  for (std::size_t at = 0; at < slots.size() && left > 0; ++at) {
    if (slots[at].ranks < left) {
      chosen.push_back(slots[at]);
      left -= slots[at].ranks;
      continue;
    }
    while (at + 1 < slots.size() && slots[at + 1].ranks >= left) ++at;
    chosen.push_back({slots[at].node, left});
    left = 0;
  }
  return left == 0 ? chosen : std::vector<Slot>();
}

// For the largest count that fits; none if no count does.
std::vector<Slot> choose(const Shape& shape, const std::vector<Slot>& slots) {
  std::int64_t room = 0;
  for (const Slot& slot : slots) room += slot.ranks;
  for (const std::int32_t ranks : counts_of(shape)) {
    // Most counts of a gang that is far too large end here, and not with a walk over all nodes.
    if (ranks > room) continue;
    auto chosen = shape.nodes > 0 ? spread(slots, ranks, nodes_for(shape, ranks)) : pack(slots, ranks);
    if (!chosen.empty()) return chosen;
  }
  return {};
}

// A share goes to the fullest device that still has room for it; whole devices go by index.
std::vector<DeviceShare> take_devices(const Shape& shape, NodeView& node) {
  std::vector<DeviceShare> taken;
  if (shape.gpu_share == 0) return taken;
  if (shape.gpu_share < whole_share) {
    std::size_t best = node.devices.size();
    for (std::size_t at = 0; at < node.devices.size(); ++at) {
      const DeviceView& device = node.devices[at];
      if (!matches(shape, device) || device.share_free < shape.gpu_share) continue;
      if (best == node.devices.size() || device.share_free < node.devices[best].share_free) best = at;
    }
    TUTTI_CHECK(best < node.devices.size());
    node.devices[best].share_free -= shape.gpu_share;
    taken.push_back({static_cast<std::int32_t>(best), shape.gpu_share});
    return taken;
  }
  std::int32_t wanted = shape.gpu_share / whole_share;
  for (std::size_t at = 0; at < node.devices.size() && wanted > 0; ++at) {
    DeviceView& device = node.devices[at];
    if (!matches(shape, device) || device.share_free != whole_share) continue;
    device.share_free = 0;
    taken.push_back({static_cast<std::int32_t>(at), whole_share});
    --wanted;
  }
  TUTTI_CHECK(wanted == 0);
  return taken;
}

std::string describe_need(const Shape& shape) {
  const std::int32_t fewest = counts_of(shape).back();
  const std::int32_t nodes = nodes_for(shape, fewest);
  std::string text = std::to_string(shape.ranks) + (shape.ranks == 1 ? " rank" : " ranks");
  if (fewest < shape.ranks) text = "at least " + std::to_string(fewest) + " of " + text;
  if (nodes > 0) text += " on " + std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
  if (shape.ranks_per_node > 0) text += ", " + std::to_string(shape.ranks_per_node) + " a node";
  if (shape.gpu_share > 0) {
    char share[32];
    std::snprintf(share, sizeof share, "%.4g", shape.gpu_share / 1000.0);
    text += " of " + std::string(share) + " GPU" + (shape.gpu_model.empty() ? "" : " " + shape.gpu_model);
    if (shape.gpu_memory.count() > 0) text += " with " + format_bytes(shape.gpu_memory);
  }
  if (shape.cpus > 0) text += ", " + std::to_string(shape.cpus) + " CPUs";
  if (shape.memory.count() > 0) text += ", " + format_bytes(shape.memory);
  return text;
}

std::string describe_free(const Shape& shape, const std::vector<NodeView>& nodes) {
  std::int64_t share = 0;
  std::int64_t ranks = 0;
  for (const NodeView& node : nodes) {
    ranks += capacity(shape, node);
    for (const DeviceView& device : node.devices) share += matches(shape, device) ? device.share_free : 0;
  }
  char gpus[32];
  std::snprintf(gpus, sizeof gpus, "%.4g", static_cast<double>(share) / 1000.0);
  std::string text =
      std::to_string(nodes.size()) + (nodes.size() == 1 ? " node takes" : " nodes take") + " work";
  if (shape.gpu_share > 0) text += ", " + std::string(gpus) + " matching GPUs are free";
  return text + ", " + std::to_string(ranks) + " such ranks would fit";
}

Result<> validate_counts(const Shape& shape) {
  const auto counts = counts_of(shape);
  if (counts.size() > rank_counts_max)
    return invalid("rank_counts has more than " + std::to_string(rank_counts_max) + " entries");
  if (counts.front() != shape.ranks)
    return invalid("rank_counts begins with " + std::to_string(counts.front()) + " and ranks is " +
                   std::to_string(shape.ranks) + ": they must be the same");
  const auto rise = std::ranges::adjacent_find(counts, std::less_equal());
  if (rise != counts.end())
    return invalid("rank_counts must descend, and " + std::to_string(rise[1]) + " comes after " +
                   std::to_string(rise[0]));
  if (counts.back() < 1) return invalid("a gang has at least one rank");
  return {};
}

}  // namespace

bool runs_with(const Shape& shape, std::size_t ranks) {
  return std::ranges::any_of(counts_of(shape),
                             [&](std::int32_t count) { return std::cmp_equal(count, ranks); });
}

Result<> validate(const Shape& shape) {
  if (auto sound = validate_counts(shape); !sound) return sound;
  if (shape.nodes < 0 || shape.ranks_per_node < 0 || shape.gpu_share < 0 || shape.cpus < 0 ||
      shape.memory.count() < 0) {
    return invalid("a gang cannot need less than nothing");
  }
  if (shape.nodes > shape.ranks) return invalid("a gang cannot have more nodes than ranks");
  if (shape.nodes > 0 && shape.ranks_per_node > 0 &&
      static_cast<std::int64_t>(shape.nodes) * shape.ranks_per_node < shape.ranks) {
    return invalid("the ranks do not fit into that many nodes with that many ranks a node");
  }
  if (shape.gpu_share > whole_share && shape.gpu_share % whole_share != 0) {
    return invalid("more than one GPU per rank must be whole GPUs");
  }
  return {};
}

Result<std::vector<RankPlace>> place(const Shape& shape, std::vector<NodeView>& nodes) {
  const auto chosen = choose(shape, find_slots(shape, nodes));
  if (chosen.empty()) return failed("needs " + describe_need(shape) + "; " + describe_free(shape, nodes));
  std::vector<RankPlace> places;
  places.reserve(static_cast<std::size_t>(shape.ranks));
  for (const Slot& slot : chosen) {
    NodeView& node = nodes[slot.node];
    for (std::int32_t rank = 0; rank < slot.ranks; ++rank)
      places.push_back({node.name, take_devices(shape, node)});
    node.cpus_free -= shape.cpus * slot.ranks;
    node.memory_free -= shape.memory * slot.ranks;
  }
  return places;
}

}  // namespace tutti::sched
