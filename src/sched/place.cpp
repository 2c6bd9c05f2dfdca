#include <algorithm>
#include <limits>

#include "sched/sched.hpp"

namespace tutti::sched {
namespace {

constexpr std::int32_t unlimited = std::numeric_limits<std::int32_t>::max();

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

// Exactly shape.nodes nodes, the ranks spread evenly, the fuller nodes first so that empty ones stay whole.
std::vector<Slot> spread(const Shape& shape, std::vector<Slot> slots) {
  const std::int32_t most = (shape.ranks + shape.nodes - 1) / shape.nodes;
  std::erase_if(slots, [&](const Slot& slot) { return slot.ranks < most; });
  if (slots.size() < static_cast<std::size_t>(shape.nodes)) return {};
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Slot& a, const Slot& b) { return a.ranks < b.ranks; });
  slots.resize(static_cast<std::size_t>(shape.nodes));
  for (std::int32_t at = 0; at < shape.nodes; ++at) {
    slots[static_cast<std::size_t>(at)].ranks =
        shape.ranks / shape.nodes + (at < shape.ranks % shape.nodes ? 1 : 0);
  }
  return slots;
}

// As few nodes as fit: the roomiest ones until the rest of the gang fits into one, and for that the tightest.
std::vector<Slot> pack(const Shape& shape, std::vector<Slot> slots) {
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Slot& a, const Slot& b) { return a.ranks > b.ranks; });
  std::vector<Slot> chosen;
  std::int32_t left = shape.ranks;
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
  std::string text = std::to_string(shape.ranks) + (shape.ranks == 1 ? " rank" : " ranks");
  if (shape.nodes > 0) text += " on " + std::to_string(shape.nodes) + " nodes";
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

}  // namespace

Result<> validate(const Shape& shape) {
  if (shape.ranks < 1) return invalid("a gang has at least one rank");
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
  std::vector<Slot> slots;
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    const std::int32_t ranks = capacity(shape, nodes[at]);
    if (ranks > 0) slots.push_back({at, ranks});
  }
  const auto chosen = shape.nodes > 0 ? spread(shape, std::move(slots)) : pack(shape, std::move(slots));
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
