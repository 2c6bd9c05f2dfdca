#include "control/sched/place.hpp"

#include <algorithm>
#include <limits>

#include "base/index.hpp"

namespace tutti::sched {
namespace {

// A vertex whose sums promise enough may still lack CPUs or memory. So many of one level are looked into
// before the next larger parts are, unless the gang insists on that level.
constexpr int tries_max = 8;

// An upper bound on the ranks that the open nodes of a vertex can take, from its sums alone.
std::int64_t bound(const Room& room, const Need& need, VertexIndex vertex) {
  if (need.devices == 0) return std::numeric_limits<std::int32_t>::max();
  if (!need.whole()) return room.share_free(vertex, need.kinds) / need.share;
  if (need.devices == 1 && need.ranks_per_node == 0) return room.whole_in(vertex, need.kinds);
  std::int64_t ranks = 0;
  for (std::size_t kind = 0; kind < room.kinds(); ++kind) {
    if ((need.kinds >> kind & 1) == 0) continue;
    for (std::int32_t whole = need.devices; whole <= room.widest(); ++whole) {
      std::int32_t each = whole / need.devices;
      if (need.ranks_per_node > 0) each = std::min(each, need.ranks_per_node);
      ranks += std::int64_t{each} * room.nodes_with(vertex, kind, whole);
    }
  }
  return ranks;
}

// How many nodes of a vertex can take so many ranks each, at most.
std::int64_t nodes_bound(const Room& room, const Need& need, VertexIndex vertex, std::int32_t each) {
  if (need.devices == 0 || !need.whole()) return std::numeric_limits<std::int32_t>::max();
  std::int64_t nodes = 0;
  for (std::size_t kind = 0; kind < room.kinds(); ++kind) {
    if ((need.kinds >> kind & 1) == 0) continue;
    for (std::int32_t whole = each * need.devices; whole <= room.widest(); ++whole)
      nodes += room.nodes_with(vertex, kind, whole);
  }
  return nodes;
}

// Gathers the nodes of one gang.
class Gathering {
 public:
  Gathering(const Room& room, const Need& need, std::int32_t ranks)
      : room_(room), need_(need), ranks_(ranks), left_(ranks) {}

  bool done() const { return left_ == 0; }
  std::vector<Places::Slot>& slots() { return slots_; }

  // As few parts and nodes as fit: the roomiest until the rest fits into one, and for that the tightest.
  void pack(VertexIndex at) {
    const Room::Vertex& vertex = room_.vertex(at);
    std::vector<Part> parts;
    parts.reserve(static_cast<std::size_t>(vertex.children_last - vertex.children_first) +
                  static_cast<std::size_t>(vertex.direct - vertex.first));
    for (VertexIndex child = vertex.children_first; child < vertex.children_last; ++child) {
      if (const std::int64_t holds = bound(room_, need_, child); holds > 0)
        parts.push_back({holds, child, -1});
    }
    for (NodeIndex node = vertex.first; node < vertex.direct; ++node) {
      if (const std::int32_t holds = room_.capacity(need_, node, ranks_); holds > 0)
        parts.push_back({holds, -1, node});
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.holds > b.holds; });
    std::vector<bool> used(parts.size());
    for (std::size_t next = 0; next < parts.size() && left_ > 0; ++next) {
      if (used[next]) continue;
      // The tightest of those that hold all of the rest, if any does.
      std::size_t chosen = next;
      while (chosen + 1 < parts.size() && parts[chosen + 1].holds >= left_) ++chosen;
      while (used[chosen]) --chosen;
      enter(parts[chosen]);
      used[chosen] = true;
      if (chosen != next) --next;  // its sums promised too much: the others are still there
    }
  }

  // Exactly so many nodes, the ranks spread evenly, on the tightest ones.
  void spread(VertexIndex at, std::int32_t nodes) {
    const std::int32_t most = (ranks_ + nodes - 1) / nodes;
    const Room::Vertex& vertex = room_.vertex(at);
    std::vector<Part> roomy;
    for (NodeIndex node = vertex.first; node < vertex.last; ++node) {
      // More than the gang has, so that a tight node can be told from a roomy one.
      const std::int32_t holds = room_.capacity(need_, node, std::numeric_limits<std::int32_t>::max());
      if (holds >= most) roomy.push_back({holds, -1, node});
    }
    if (std::cmp_less(roomy.size(), nodes)) return;
    std::stable_sort(roomy.begin(), roomy.end(),
                     [](const Part& a, const Part& b) { return a.holds < b.holds; });
    roomy.resize(static_cast<std::size_t>(nodes));
    std::sort(roomy.begin(), roomy.end(), [](const Part& a, const Part& b) { return a.node < b.node; });
    for (std::int32_t index = 0; index < nodes; ++index)
      slots_.push_back({roomy[at_(index)].node, ranks_ / nodes + (index < ranks_ % nodes ? 1 : 0)});
    left_ = 0;
  }

 private:
  struct Part {
    std::int64_t holds = 0;
    VertexIndex vertex = -1;
    NodeIndex node = -1;
  };

  static std::size_t at_(std::int32_t index) { return static_cast<std::size_t>(index); }

  void enter(const Part& part) {
    if (part.vertex >= 0) return pack(part.vertex);
    const auto ranks = static_cast<std::int32_t>(std::min<std::int64_t>(part.holds, left_));
    slots_.push_back({part.node, ranks});
    left_ -= ranks;
  }

  const Room& room_;
  const Need& need_;
  std::int32_t ranks_;
  std::int32_t left_;
  std::vector<Places::Slot> slots_;
};

Places finish(const Room& room, const Need& need, std::vector<Places::Slot> slots, const NodeChoice& choice) {
  std::sort(slots.begin(), slots.end(),
            [](const Places::Slot& a, const Places::Slot& b) { return a.node < b.node; });
  Places places;
  places.slots = std::move(slots);
  places.devices.reserve(at(places.ranks()) * at(need.devices));
  for (const Places::Slot& slot : places.slots)
    choice.devices(room, need, slot.node, slot.ranks, places.devices);
  return places;
}

// Into this vertex, or nothing.
std::vector<Places::Slot> gather(const Room& room, const Need& need, VertexIndex vertex, std::int32_t ranks,
                                 std::int32_t nodes) {
  Gathering gathering(room, need, ranks);
  if (nodes > 0) {
    gathering.spread(vertex, nodes);
  } else {
    gathering.pack(vertex);
  }
  if (!gathering.done()) return {};
  return std::move(gathering.slots());
}

// The part of one level that holds the gang with the least to spare.
std::vector<Places::Slot> into_level(const Room& room, const Need& need, Level level, std::int32_t ranks,
                                     std::int32_t nodes, int tries) {
  const auto [first, last] = room.vertices(level);
  struct Candidate {
    std::int64_t holds;
    VertexIndex vertex;
  };
  std::vector<Candidate> candidates;
  Candidate best{std::numeric_limits<std::int64_t>::max(), -1};
  const std::int32_t most = nodes > 0 ? (ranks + nodes - 1) / nodes : 0;
  const auto holds_enough = [&](VertexIndex vertex, std::int64_t holds) {
    return holds >= ranks && (nodes == 0 || nodes_bound(room, need, vertex, most) >= nodes);
  };
  for (VertexIndex vertex = first; vertex < last; ++vertex) {
    const std::int64_t holds = bound(room, need, vertex);
    if (holds < best.holds && holds_enough(vertex, holds)) best = {holds, vertex};
  }
  if (best.vertex < 0) return {};
  if (auto slots = gather(room, need, best.vertex, ranks, nodes); !slots.empty()) return slots;
  // The sums promised what CPUs or memory do not keep: try the others, the tighter first.
  for (VertexIndex vertex = first; vertex < last; ++vertex) {
    const std::int64_t holds = bound(room, need, vertex);
    if (vertex != best.vertex && holds_enough(vertex, holds)) candidates.push_back({holds, vertex});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.holds < b.holds; });
  if (std::cmp_greater(candidates.size(), tries)) candidates.resize(static_cast<std::size_t>(tries));
  for (const Candidate& candidate : candidates) {
    if (auto slots = gather(room, need, candidate.vertex, ranks, nodes); !slots.empty()) return slots;
  }
  return {};
}

// A gang of devices that are all alike runs at one pace: each kind alone, and only then all together.
std::vector<Kinds> choices_of(Kinds kinds) {
  std::vector<Kinds> choices;
  for (std::size_t kind = 0; kind < kinds_max; ++kind) {
    if ((kinds >> kind & 1) != 0) choices.push_back(Kinds{1} << kind);
  }
  if (choices.size() != 1) choices.push_back(kinds);
  return choices;
}

}  // namespace

std::optional<NodeIndex> TightestNode::choose(const Room& room, const Need& need, std::int32_t ranks) const {
  const std::int32_t wanted = need.devices * ranks;
  if (need.devices > 0 && need.whole()) {
    // Down the tree to a node with the fewest whole devices that do, through the fullest parts.
    std::int32_t tightest = room.widest() + 1;
    std::size_t of_kind = 0;
    for (std::size_t kind = 0; kind < room.kinds(); ++kind) {
      if ((need.kinds >> kind & 1) == 0) continue;
      for (std::int32_t whole = wanted; whole < tightest; ++whole) {
        if (room.nodes_with(0, kind, whole) > 0) tightest = whole, of_kind = kind;
      }
    }
    const Kinds one = Kinds{1} << of_kind;
    // A node of several kinds may hold it although none of its kinds does alone: the walk below finds it.
    for (VertexIndex vertex = 0; tightest <= room.widest();) {
      const Room::Vertex& here = room.vertex(vertex);
      for (NodeIndex node = here.first; node < here.direct; ++node) {
        if (room.open(node) && room.whole_on(node, one) == tightest &&
            room.capacity(need, node, ranks) == ranks)
          return node;
      }
      VertexIndex next = -1;
      for (VertexIndex child = here.children_first; child < here.children_last; ++child) {
        if (room.nodes_with(child, of_kind, tightest) == 0) continue;
        if (next < 0 || room.whole_in(child, one) < room.whole_in(next, one)) next = child;
      }
      if (next < 0) break;
      vertex = next;
    }
    if (tightest > room.widest() && room.kinds() == 1) return std::nullopt;
  }
  std::optional<NodeIndex> best;
  std::int64_t best_left = std::numeric_limits<std::int64_t>::max();
  for (NodeIndex node = 0; node < room.nodes(); ++node) {
    if (room.capacity(need, node, ranks) < ranks) continue;
    std::int64_t left = 0;
    for (const std::int16_t share : room.shares_free(node)) left += share;
    if (need.devices == 0) left = left * 1000 + room.cpus_free(node);
    if (left < best_left) best_left = left, best = node;
  }
  return best;
}

std::optional<Places> place(const Room& room, const Shape& shape, std::int32_t ranks,
                            const NodeChoice& choice) {
  Need need = room.need(shape);
  if (bound(room, need, 0) < ranks) return std::nullopt;
  const std::int32_t nodes = nodes_for(shape, ranks);
  if (nodes <= 1 && (need.ranks_per_node == 0 || need.ranks_per_node >= ranks)) {
    if (const auto node = choice.choose(room, need, ranks))
      return finish(room, need, {{*node, ranks}}, choice);
    if (nodes == 1) return std::nullopt;
  }
  const std::vector<Kinds> choices = choices_of(need.kinds);
  for (auto level = static_cast<int>(levels) - 1; level >= static_cast<int>(shape.within); --level) {
    const bool last = level == static_cast<int>(shape.within);
    for (const Kinds kinds : choices) {
      need.kinds = kinds;
      auto slots = into_level(room, need, static_cast<Level>(level), ranks, nodes,
                              last ? std::numeric_limits<int>::max() : tries_max);
      if (!slots.empty()) return finish(room, need, std::move(slots), choice);
    }
  }
  return std::nullopt;
}

std::optional<Places> place(const Room& room, const Shape& shape, const NodeChoice& choice) {
  for (const std::int32_t ranks : counts_of(shape)) {
    if (auto places = place(room, shape, ranks, choice)) return places;
  }
  return std::nullopt;
}

bool may_hold(const Room& room, const Shape& shape, std::int32_t ranks) {
  return bound(room, room.need(shape), 0) >= ranks;
}

std::string describe_refusal(const Room& room, const Shape& shape) {
  const Need need = room.need(shape);
  std::int64_t ranks = 0;
  std::int32_t blind = 0;
  for (NodeIndex node = 0; node < room.nodes(); ++node) {
    ranks += room.capacity(need, node, shape.ranks);
    if (room.watches_too_few(need, node, shape.ranks)) ++blind;
  }
  std::string text = "needs " + describe_need(shape) + "; " + std::to_string(room.open_nodes()) +
                     (room.open_nodes() == 1 ? " node takes" : " nodes take") + " work";
  if (shape.gpu_share > 0)
    text += ", " + format_gpus(room.share_free(0, need.kinds)) + " matching GPUs are free";
  text += ", " + std::to_string(ranks) + " such ranks would fit";
  if (!shape.avoid.empty())
    text +=
        "; it is not tried again on " + std::to_string(shape.avoid.size()) +
        ", where what it ships does not fit or what it has saved is missing, before some minutes are over";
  if (need.loose())
    text += " (at most " + std::to_string(loose_ranks_per_cpu_max) +
            " ranks that ask for neither CPUs nor whole GPUs share a CPU)";
  if (blind > 0)
    text += "; " + std::to_string(blind) + (blind == 1 ? " node has" : " nodes have") +
            " room for more, but the agent there may not open enough files to watch them (`ulimit -Hn`)";
  return text;
}

}  // namespace tutti::sched
