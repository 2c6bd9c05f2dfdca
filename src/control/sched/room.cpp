#include "control/sched/room.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string_view>
#include <tuple>

#include "base/index.hpp"

namespace tutti::sched {
namespace {

using Path = std::vector<std::string>;

// Of nodes that have not said how many ranks they can watch: more than anything else lets in.
constexpr std::int32_t watch_any = std::numeric_limits<std::int32_t>::max() / 2;

Path parts_of(const std::string& location) {
  Path parts;
  std::size_t begin = 0;
  while (begin <= location.size() && parts.size() + 1 < levels) {
    // What is deeper than an NVLink group belongs to its name.
    const bool last = parts.size() + 2 == levels;
    const std::size_t end = last ? std::string::npos : location.find('/', begin);
    std::string part = location.substr(begin, end == std::string::npos ? end : end - begin);
    if (!part.empty()) parts.push_back(std::move(part));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return parts;
}

// As people count: n2 comes before n10.
bool comes_before(const std::string& a, const std::string& b) {
  const auto digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    std::size_t i_end = i;
    std::size_t j_end = j;
    while (i_end < a.size() && digit(a[i_end])) ++i_end;
    while (j_end < b.size() && digit(b[j_end])) ++j_end;
    if (i_end - i != j_end - j) return i_end - i < j_end - j;
    const int order = a.compare(i, i_end - i, b, j, j_end - j);
    if (order != 0) return order < 0;
    i = i_end, j = j_end;
  }
  if ((i == a.size()) != (j == b.size())) return i == a.size();
  return a < b;  // they differ in leading zeros only, or not at all
}

bool path_before(const Path& a, const Path& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), comes_before);
}

// Whatever the case: Slurm's scripts write h100 where nodes report H100.
bool is_same_word(std::string_view one, std::string_view other) {
  const auto small = [](char letter) { return letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter; };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&](char left, char right) { return small(left) == small(right); });
}

// "H100" or "A100|H100"; "" is any.
bool names_model(const std::string& wanted, const std::string& model) {
  if (wanted.empty()) return true;
  std::size_t begin = 0;
  while (begin <= wanted.size()) {
    const std::size_t end = std::min(wanted.find('|', begin), wanted.size());
    if (is_same_word(std::string_view(wanted).substr(begin, end - begin), model)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::int32_t Places::ranks() const {
  return std::accumulate(slots.begin(), slots.end(), 0,
                         [](std::int32_t sum, const Slot& slot) { return sum + slot.ranks; });
}

struct Room::Layout {
  struct Node {
    NodeName name;
    VertexIndex parent = 0;
    std::int32_t devices_first = 0;
    std::int32_t devices_last = 0;
    std::int32_t groups_first = 0;
    std::int32_t groups_last = 0;
  };
  struct Kind {
    std::string model;
    Bytes memory;
    bool mixed = false;  // stands for several: only gangs that take anything may use it
    std::int64_t share = 0;
  };
  std::vector<Node> nodes;
  std::map<NodeName, NodeIndex> by_name;
  std::vector<Vertex> vertices;
  std::array<VertexIndex, levels + 1> level_first{};
  std::vector<Kind> kinds;
  std::vector<std::uint8_t> group_kind;    // by group
  std::vector<std::int32_t> device_group;  // by device
  std::vector<std::int16_t> island;        // by device
  std::int32_t widest = 0;

  std::uint8_t kind_of(const DeviceView& device) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      if (kinds[kind].mixed || (kinds[kind].model == device.model && kinds[kind].memory == device.memory))
        return static_cast<std::uint8_t>(kind);
    }
    const bool mixed = kinds.size() + 1 == kinds_max;
    kinds.push_back({mixed ? "" : device.model, mixed ? Bytes() : device.memory, mixed, 0});
    return static_cast<std::uint8_t>(kinds.size() - 1);
  }

  void add_devices(Node& node, const std::vector<DeviceView>& devices) {
    node.devices_first = static_cast<std::int32_t>(device_group.size());
    node.groups_first = static_cast<std::int32_t>(group_kind.size());
    for (const DeviceView& device : devices) {
      const std::uint8_t kind = kind_of(device);
      kinds[kind].share += whole_share;
      auto group = static_cast<std::size_t>(node.groups_first);
      while (group < group_kind.size() && group_kind[group] != kind) ++group;
      if (group == group_kind.size()) group_kind.push_back(kind);
      device_group.push_back(static_cast<std::int32_t>(group));
      island.push_back(static_cast<std::int16_t>(device.island));
    }
    node.devices_last = static_cast<std::int32_t>(device_group.size());
    node.groups_last = static_cast<std::int32_t>(group_kind.size());
    for (auto group = static_cast<std::size_t>(node.groups_first); group < group_kind.size(); ++group) {
      const auto count = std::count(device_group.begin() + node.devices_first, device_group.end(),
                                    static_cast<std::int32_t>(group));
      widest = std::max(widest, static_cast<std::int32_t>(count));
    }
  }

  // Level by level: nodes come in the order of their paths, so each vertex is a run of nodes, and the
  // vertices below one are neighbours.
  void grow(const std::vector<Path>& paths) {
    const auto count = static_cast<NodeIndex>(paths.size());
    vertices.push_back({"", -1, Level::cluster, 0, count, 0, 0, 0});
    level_first[1] = 1;
    for (std::size_t level = 1; level < levels; ++level) {
      for (VertexIndex above = level_first[level - 1]; above < level_first[level]; ++above)
        branch(above, static_cast<Level>(level), paths);
      level_first[level + 1] = static_cast<VertexIndex>(vertices.size());
    }
    for (VertexIndex at = level_first[levels - 1]; at < level_first[levels]; ++at) {
      Vertex& deepest = vertices[static_cast<std::size_t>(at)];
      deepest.direct = deepest.last;
      for (NodeIndex node = deepest.first; node < deepest.last; ++node)
        nodes[static_cast<std::size_t>(node)].parent = at;
    }
  }

  void branch(VertexIndex above, Level level, const std::vector<Path>& paths) {
    const std::size_t depth = static_cast<std::size_t>(level) - 1;
    const NodeIndex last = vertices[static_cast<std::size_t>(above)].last;
    NodeIndex node = vertices[static_cast<std::size_t>(above)].first;
    for (; node < last && paths[static_cast<std::size_t>(node)].size() <= depth; ++node)
      nodes[static_cast<std::size_t>(node)].parent = above;
    vertices[static_cast<std::size_t>(above)].direct = node;
    vertices[static_cast<std::size_t>(above)].children_first = static_cast<VertexIndex>(vertices.size());
    while (node < last) {
      const std::string& part = paths[static_cast<std::size_t>(node)][depth];
      NodeIndex end = node;
      while (end < last && paths[static_cast<std::size_t>(end)][depth] == part) ++end;
      vertices.push_back({part, above, level, node, end, node, 0, 0});
      node = end;
    }
    vertices[static_cast<std::size_t>(above)].children_last = static_cast<VertexIndex>(vertices.size());
  }
};

Room::Room(std::vector<NodeView> views) {
  std::vector<std::pair<Path, std::size_t>> order;
  order.reserve(views.size());
  for (std::size_t view = 0; view < views.size(); ++view)
    order.emplace_back(parts_of(views[view].location), view);
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return path_before(a.first, b.first);
    return comes_before(views[a.second].name, views[b.second].name);
  });
  auto layout = std::make_shared<Layout>();
  std::vector<Path> paths;
  paths.reserve(views.size());
  for (auto& [path, view] : order) {
    NodeView& from = views[view];
    Layout::Node node;
    layout->by_name.emplace(from.name, static_cast<NodeIndex>(layout->nodes.size()));
    node.name = std::move(from.name);
    layout->add_devices(node, from.devices);
    layout->nodes.push_back(std::move(node));
    paths.push_back(std::move(path));
    const std::int32_t loose = std::max(from.cpus_free, 1) * loose_ranks_per_cpu_max;
    const std::int32_t watch = from.watch_max > 0 ? from.watch_max : watch_any;
    free_.push_back({from.memory_free.count(), from.cpus_free, loose, watch, from.open, 0});
    for (const DeviceView& device : from.devices)
      shares_.push_back(static_cast<std::int16_t>(device.share_free));
  }
  layout->grow(paths);
  groups_.resize(layout->group_kind.size());
  sums_.resize(layout->vertices.size() * layout->kinds.size());
  spread_.resize(sums_.size() * static_cast<std::size_t>(layout->widest + 1));
  layout_ = std::move(layout);
  for (NodeIndex node = 0; node < nodes(); ++node) {
    recount(node);
    if (!free_[at(node)].open) continue;
    ++open_nodes_;
    add_to_parents(node, 1);
  }
}

NodeIndex Room::nodes() const { return static_cast<NodeIndex>(layout_->nodes.size()); }
const NodeName& Room::name(NodeIndex node) const { return layout_->nodes[at(node)].name; }
VertexIndex Room::parent(NodeIndex node) const { return layout_->nodes[at(node)].parent; }
const Room::Vertex& Room::vertex(VertexIndex index) const { return layout_->vertices[at(index)]; }
std::int32_t Room::widest() const { return layout_->widest; }
std::size_t Room::kinds() const { return layout_->kinds.size(); }
const std::string& Room::model(std::size_t kind) const { return layout_->kinds[kind].model; }
std::int64_t Room::total_share(std::size_t kind) const { return layout_->kinds[kind].share; }
bool Room::open(NodeIndex node) const { return free_[at(node)].open; }

std::pair<VertexIndex, VertexIndex> Room::vertices(Level level) const {
  const auto index = static_cast<std::size_t>(level);
  return {layout_->level_first[index], layout_->level_first[index + 1]};
}

std::string Room::location(NodeIndex node) const {
  std::string text;
  for (VertexIndex at = parent(node); at > 0; at = vertex(at).parent)
    text = vertex(at).name + (text.empty() ? "" : "/" + text);
  return text;
}

std::optional<NodeIndex> Room::find(const NodeName& name) const {
  const auto found = layout_->by_name.find(name);
  if (found == layout_->by_name.end()) return std::nullopt;
  return found->second;
}

std::int32_t Room::device_count(NodeIndex node) const {
  return layout_->nodes[at(node)].devices_last - layout_->nodes[at(node)].devices_first;
}

std::span<const std::int16_t> Room::shares_free(NodeIndex node) const {
  return std::span(shares_).subspan(at(layout_->nodes[at(node)].devices_first), at(device_count(node)));
}

std::size_t Room::kind_of(NodeIndex node, std::int32_t device) const {
  const std::int32_t first = layout_->nodes[at(node)].devices_first;
  return layout_->group_kind[at(layout_->device_group[at(first + device)])];
}

Need Room::need(const Shape& shape) const {
  Need need{devices_each(shape),  share_each(shape),    shape.cpus,
            shape.memory.count(), shape.ranks_per_node, 0};
  for (const NodeName& name : shape.avoid)
    if (const auto node = find(name)) need.avoid.push_back(*node);
  std::sort(need.avoid.begin(), need.avoid.end());
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    const Layout::Kind& known = layout_->kinds[kind];
    const bool any = shape.gpu_model.empty() && shape.gpu_memory.count() == 0;
    const bool named = !known.mixed && names_model(shape.gpu_model, known.model);
    if (any || (named && known.memory >= shape.gpu_memory)) need.kinds |= Kinds{1} << kind;
  }
  return need;
}

// What the node adds to the sums of everything above it, or takes from them.
void Room::add_to_parents(NodeIndex node, std::int32_t sign) {
  const Layout::Node& known = layout_->nodes[at(node)];
  for (std::int32_t group = known.groups_first; group < known.groups_last; ++group) {
    const Sum& own = groups_[at(group)];
    const std::size_t kind = layout_->group_kind[at(group)];
    for (VertexIndex up = known.parent; up >= 0; up = layout_->vertices[at(up)].parent) {
      Sum& sum = sums_[at(up) * kinds() + kind];
      sum.share += sign * own.share;
      sum.whole += sign * own.whole;
      spread_[spread_at(up, kind) + at(own.whole)] += sign;
    }
  }
}

void Room::recount(NodeIndex node) {
  const Layout::Node& known = layout_->nodes[at(node)];
  for (std::int32_t group = known.groups_first; group < known.groups_last; ++group) groups_[at(group)] = {};
  for (std::int32_t device = known.devices_first; device < known.devices_last; ++device) {
    Sum& sum = groups_[at(layout_->device_group[at(device)])];
    const std::int16_t share = shares_[at(device)];
    if (share > 0) sum.share += share;
    if (share == whole_share) ++sum.whole;
  }
}

std::size_t Room::spread_at(VertexIndex vertex, std::size_t kind) const {
  return (at(vertex) * kinds() + kind) * at(layout_->widest + 1);
}

void Room::set_open(NodeIndex node, bool open) {
  if (free_[at(node)].open == open) return;
  add_to_parents(node, open ? 1 : -1);
  open_nodes_ += open ? 1 : -1;
  free_[at(node)].open = open;
}

std::int64_t Room::share_free(VertexIndex vertex, Kinds kinds_wanted) const {
  std::int64_t share = 0;
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    if ((kinds_wanted >> kind & 1) != 0) share += sums_[at(vertex) * kinds() + kind].share;
  }
  return share;
}

std::int32_t Room::whole_in(VertexIndex vertex, Kinds kinds_wanted) const {
  std::int32_t whole = 0;
  for (std::size_t kind = 0; kind < kinds(); ++kind) {
    if ((kinds_wanted >> kind & 1) != 0) whole += sums_[at(vertex) * kinds() + kind].whole;
  }
  return whole;
}

std::int32_t Room::whole_on(NodeIndex node, Kinds kinds_wanted) const {
  const Layout::Node& known = layout_->nodes[at(node)];
  std::int32_t whole = 0;
  for (std::int32_t group = known.groups_first; group < known.groups_last; ++group) {
    if ((kinds_wanted >> layout_->group_kind[at(group)] & 1) != 0) whole += groups_[at(group)].whole;
  }
  return whole;
}

std::int32_t Room::nodes_with(VertexIndex vertex, std::size_t kind, std::int32_t whole) const {
  return spread_[spread_at(vertex, kind) + at(whole)];
}

std::int32_t Room::capacity(const Need& need, NodeIndex node, std::int32_t most) const {
  // What was found running there may be more than it would be given.
  const std::int32_t watched = std::max(free_[at(node)].watch - watched_with_a_gang, 0);
  return std::min(unwatched_capacity(need, node, most), watched);
}

std::int32_t Room::unwatched_capacity(const Need& need, NodeIndex node, std::int32_t most) const {
  const Free& free = free_[at(node)];
  if (!free.open || std::binary_search(need.avoid.begin(), need.avoid.end(), node)) return 0;
  std::int64_t ranks = most;
  if (need.ranks_per_node > 0) ranks = std::min<std::int64_t>(ranks, need.ranks_per_node);
  if (need.loose()) ranks = std::min<std::int64_t>(ranks, free.loose);
  if (need.cpus > 0) ranks = std::min<std::int64_t>(ranks, free.cpus / need.cpus);
  if (need.memory > 0) ranks = std::min(ranks, free.memory / need.memory);
  if (need.devices > 0 && need.whole()) {
    ranks = std::min<std::int64_t>(ranks, whole_on(node, need.kinds) / need.devices);
  } else if (need.devices > 0) {
    const Layout::Node& known = layout_->nodes[at(node)];
    std::int64_t by_share = 0;
    for (std::int32_t device = known.devices_first; device < known.devices_last; ++device) {
      const std::uint8_t kind = layout_->group_kind[at(layout_->device_group[at(device)])];
      if ((need.kinds >> kind & 1) != 0 && shares_[at(device)] > 0)
        by_share += shares_[at(device)] / need.share;
    }
    ranks = std::min(ranks, by_share);
  }
  return static_cast<std::int32_t>(std::max<std::int64_t>(ranks, 0));
}

void Room::choose_devices(const Need& need, NodeIndex node, std::int32_t ranks,
                          std::vector<std::int16_t>& devices) const {
  if (need.devices == 0) return;
  const Layout::Node& known = layout_->nodes[at(node)];
  const std::int32_t count = device_count(node);
  const auto matches = [&](std::int32_t device) { return (need.kinds >> kind_of(node, device) & 1) != 0; };
  std::vector<std::int16_t> left(shares_.begin() + known.devices_first, shares_.begin() + known.devices_last);
  if (!need.whole()) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      std::int32_t best = -1;
      for (std::int32_t device = 0; device < count; ++device) {
        if (!matches(device) || left[at(device)] < need.share) continue;
        if (best < 0 || left[at(device)] < left[at(best)]) best = device;
      }
      TUTTI_CHECK(best >= 0);
      left[at(best)] = static_cast<std::int16_t>(left[at(best)] - need.share);
      devices.push_back(static_cast<std::int16_t>(best));
    }
    return;
  }
  std::vector<std::int16_t> whole;
  for (std::int32_t device = 0; device < count; ++device) {
    if (matches(device) && left[at(device)] == whole_share)
      whole.push_back(static_cast<std::int16_t>(device));
  }
  const std::size_t wanted = at(ranks) * at(need.devices);
  TUTTI_CHECK(whole.size() >= wanted);
  // Devices of one island in a row, the tightest island that holds all of them first, or else the roomiest.
  const auto island = [&](std::int16_t device) { return layout_->island[at(known.devices_first + device)]; };
  std::map<std::int16_t, std::size_t> sizes;
  for (const std::int16_t device : whole) ++sizes[island(device)];
  if (sizes.size() > 1 && wanted < whole.size()) {
    const auto rank_of = [&](std::int16_t device) {
      const std::size_t size = sizes[island(device)];
      const bool holds = size >= wanted;
      return std::tuple(!holds, holds ? size : whole.size() - size, island(device), device);
    };
    std::sort(whole.begin(), whole.end(),
              [&](std::int16_t a, std::int16_t b) { return rank_of(a) < rank_of(b); });
    whole.resize(wanted);
    std::sort(whole.begin(), whole.end());
  }
  devices.insert(devices.end(), whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(wanted));
}

bool Room::fits(const Shape& shape, const Places& places) const {
  const std::size_t each = at(devices_each(shape));
  const std::int32_t share = share_each(shape);
  if (places.devices.size() != at(places.ranks()) * each) return false;
  std::size_t next = 0;
  NodeIndex before = -1;
  const Need wanted = need(shape);
  for (const Places::Slot& slot : places.slots) {
    // Each node once, in order: what a slot takes is all that the gang takes there.
    if (slot.node <= before || slot.node >= nodes() || slot.ranks <= 0 || !open(slot.node)) return false;
    before = slot.node;
    const Free& free = free_[at(slot.node)];
    if (wanted.loose() && free.loose < slot.ranks) return false;
    if (free.watch - watched_with_a_gang < slot.ranks) return false;
    if (shape.cpus > 0 && free.cpus < std::int64_t{shape.cpus} * slot.ranks) return false;
    if (shape.memory.count() > 0 && free.memory < shape.memory.count() * slot.ranks) return false;
    std::vector<std::int32_t> left(shares_free(slot.node).begin(), shares_free(slot.node).end());
    for (std::size_t device = 0; device < at(slot.ranks) * each; ++device, ++next) {
      const std::int16_t index = places.devices[next];
      if (index < 0 || index >= device_count(slot.node)) return false;
      if ((wanted.kinds >> kind_of(slot.node, index) & 1) == 0) return false;
      if ((left[at(index)] -= share) < 0) return false;
    }
  }
  return true;
}

void Room::change(const Shape& shape, const Places& places, std::int32_t sign) {
  const std::size_t each = at(devices_each(shape));
  const std::int32_t share = share_each(shape);
  const bool loose = shape.cpus == 0 && (each == 0 || share != whole_share);
  std::size_t next = 0;
  for (const Places::Slot& slot : places.slots) {
    Free& free = free_[at(slot.node)];
    if (free.open) add_to_parents(slot.node, -1);
    if (loose) free.loose += sign * slot.ranks;
    free.watch += sign * (slot.ranks + watched_with_a_gang);
    free.cpus += sign * shape.cpus * slot.ranks;
    free.memory += sign * shape.memory.count() * slot.ranks;
    const std::int32_t first = layout_->nodes[at(slot.node)].devices_first;
    const std::int32_t count = device_count(slot.node);
    for (std::size_t device = 0; device < at(slot.ranks) * each; ++device, ++next) {
      const std::int16_t index = places.devices[next];
      if (index < 0 || index >= count) continue;
      std::int16_t& left = shares_[at(first + index)];
      left = static_cast<std::int16_t>(left + sign * share);
    }
    ++free.version;
    recount(slot.node);
    if (free.open) add_to_parents(slot.node, 1);
  }
}

bool Room::same_free(const Room& other) const {
  return shares_ == other.shares_ && free_ == other.free_ && groups_ == other.groups_ &&
         sums_ == other.sums_ && spread_ == other.spread_ && open_nodes_ == other.open_nodes_;
}

std::vector<RankPlace> Room::expand(const Shape& shape, const Places& places) const {
  std::vector<RankPlace> ranks;
  ranks.reserve(at(places.ranks()));
  const auto each = static_cast<std::size_t>(devices_each(shape));
  std::size_t next = 0;
  for (const Places::Slot& slot : places.slots) {
    for (std::int32_t rank = 0; rank < slot.ranks; ++rank) {
      RankPlace& place = ranks.emplace_back(RankPlace{name(slot.node), {}});
      place.devices.reserve(each);
      for (std::size_t device = 0; device < each; ++device)
        place.devices.push_back({places.devices[next++], share_each(shape)});
    }
  }
  return ranks;
}

std::optional<Places> Room::compact(const Shape& shape, const std::vector<RankPlace>& ranks) const {
  // By node in the order of this room; a gang's ranks may have been placed in the order of another one.
  // Ranks of one node are neighbours: it is looked up once for all of them.
  struct Run {
    NodeIndex node = 0;
    std::size_t first = 0;
    std::size_t last = 0;
  };
  std::vector<Run> runs;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (std::cmp_not_equal(ranks[rank].devices.size(), devices_each(shape))) return std::nullopt;
    if (rank == 0 || ranks[rank].node != ranks[rank - 1].node) {
      const auto node = find(ranks[rank].node);
      if (!node) return std::nullopt;
      runs.push_back({*node, rank, rank});
    }
    runs.back().last = rank + 1;
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.node < b.node; });
  Places places;
  for (const Run& run : runs) {
    const auto count = static_cast<std::int32_t>(run.last - run.first);
    if (places.slots.empty() || places.slots.back().node != run.node) places.slots.push_back({run.node, 0});
    places.slots.back().ranks += count;
    for (std::size_t rank = run.first; rank < run.last; ++rank) {
      for (const DeviceShare& device : ranks[rank].devices)
        places.devices.push_back(static_cast<std::int16_t>(device.device));
    }
  }
  return places;
}

}  // namespace tutti::sched
