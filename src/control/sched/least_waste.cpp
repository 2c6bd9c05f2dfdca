#include "control/sched/least_waste.hpp"

#include <algorithm>
#include <limits>

#include "base/index.hpp"

namespace tutti::sched {
namespace {

// So many nodes are compared at once. A larger cluster is looked through part by part, the fullest first.
constexpr NodeIndex compared_max = 4096;
// What differs by less is a tie: the first node in the order of the fabric is taken.
constexpr double tie = 1e-4;

}  // namespace

std::pair<std::int32_t, double> LeastWaste::best_device(const Room& room, const Need& need, NodeIndex node,
                                                        std::span<const std::int16_t> left) const {
  std::int32_t best = -1;
  double best_growth = std::numeric_limits<double>::max();
  for (std::int32_t device = 0; std::cmp_less(device, left.size()); ++device) {
    if (left[at(device)] < need.share || (need.kinds >> room.kind_of(node, device) & 1) == 0) continue;
    const double growth = mix_.waste[at(left[at(device)] - need.share)] - mix_.waste[at(left[at(device)])];
    const bool as_good = growth < best_growth + tie;
    if (growth < best_growth - tie || (as_good && left[at(device)] < left[at(best)]))
      best = device, best_growth = growth;
  }
  return {best, best_growth};
}

// How much more is expected to stay unused on the node if the gang goes there.
double LeastWaste::growth(const Room& room, const Need& need, NodeIndex node, std::int32_t ranks) const {
  const auto shares = room.shares_free(node);
  double free = 0;
  for (const std::int16_t share : shares) free += std::max<std::int16_t>(share, 0);
  double holes = 0;
  if (need.devices > 0 && need.whole()) {
    holes = need.devices * ranks * (mix_.waste[0] - mix_.waste[whole_share]);
  } else if (need.devices > 0 && ranks == 1) {
    holes = best_device(room, need, node, shares).second;
  } else if (need.devices > 0) {
    std::vector<std::int16_t> left(shares.begin(), shares.end());
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const auto [device, more] = best_device(room, need, node, left);
      left[at(device)] = static_cast<std::int16_t>(left[at(device)] - need.share);
      holes += more;
    }
  }
  const double taken = static_cast<double>(need.devices) * need.share * ranks;
  const auto cpus = static_cast<double>(room.cpus_free(node));
  const auto memory = static_cast<double>(room.memory_free(node));
  const double after = stranded(mix_, free - taken, cpus - static_cast<double>(need.cpus) * ranks,
                                memory - static_cast<double>(need.memory) * ranks);
  return holes + after - stranded(mix_, free, cpus, memory);
}

std::optional<NodeIndex> LeastWaste::best_of(const Room& room, const Need& need, std::int32_t ranks,
                                             NodeIndex first, NodeIndex last) const {
  std::optional<NodeIndex> best;
  double best_growth = std::numeric_limits<double>::max();
  for (NodeIndex node = first; node < last; ++node) {
    if (room.capacity(need, node, ranks) < ranks) continue;
    const double more = growth(room, need, node, ranks);
    if (more < best_growth - tie) best = node, best_growth = more;
  }
  return best;
}

std::optional<NodeIndex> LeastWaste::choose(const Room& room, const Need& need, std::int32_t ranks) const {
  if (!mix_.matters) return tightest_.choose(room, need, ranks);
  if (room.nodes() <= compared_max) return best_of(room, need, ranks, 0, room.nodes());
  // Parts that are small enough, whatever their level.
  std::vector<VertexIndex> parts;
  const auto divide = [&](const auto& self, VertexIndex vertex) -> void {
    const Room::Vertex& known = room.vertex(vertex);
    if (known.last - known.first <= compared_max || known.children_first == known.children_last) {
      parts.push_back(vertex);
      return;
    }
    for (VertexIndex child = known.children_first; child < known.children_last; ++child) self(self, child);
  };
  divide(divide, 0);
  std::stable_sort(parts.begin(), parts.end(), [&](VertexIndex a, VertexIndex b) {
    return room.share_free(a, need.kinds) < room.share_free(b, need.kinds);
  });
  for (const VertexIndex part : parts) {
    if (const auto node = best_of(room, need, ranks, room.vertex(part).first, room.vertex(part).last))
      return node;
  }
  return tightest_.choose(room, need, ranks);
}

void LeastWaste::devices(const Room& room, const Need& need, NodeIndex node, std::int32_t ranks,
                         std::vector<std::int16_t>& devices) const {
  if (need.devices == 0 || need.whole() || !mix_.matters)
    return room.choose_devices(need, node, ranks, devices);
  std::vector<std::int16_t> left(room.shares_free(node).begin(), room.shares_free(node).end());
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const std::int32_t device = best_device(room, need, node, left).first;
    TUTTI_CHECK(device >= 0);
    left[at(device)] = static_cast<std::int16_t>(left[at(device)] - need.share);
    devices.push_back(static_cast<std::int16_t>(device));
  }
}

}  // namespace tutti::sched
