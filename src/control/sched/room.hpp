// What is free, as a tree: site, pod, rack, NVLink group, node, device. Every part of the tree knows the sum
// of what is free below it, by kind of device, and is updated in place, so that the smallest part that holds
// a gang is found without visiting the nodes of the others.
//
// The shape of the tree never changes and is shared between copies: a copy of a room of 27,500 nodes is about
// two megabytes of plain numbers. Plain data: any thread, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "control/sched/shape.hpp"

namespace tutti::sched {

using NodeIndex = std::int32_t;    // in the order of the fabric: neighbours have neighbouring indices
using VertexIndex = std::int32_t;  // 0 is the whole cluster

// Devices of one model and one size of memory are of one kind. A cluster has few; what comes after so many
// different ones is told apart no more and serves only gangs that take any model.
constexpr std::size_t kinds_max = 64;
using Kinds = std::uint64_t;  // a set of kinds, a bit for each

// A rank that asks for neither whole devices nor CPUs takes next to nothing, and still runs somewhere: a node
// takes so many of those for each of its CPUs, of all gangs together.
constexpr std::int32_t loose_ranks_per_cpu_max = 16;

// Whoever watches the ranks of a node has so many of them, and each gang there counts as so many more.
constexpr std::int32_t watched_with_a_gang = 1;

// Where a gang goes, in numbers of one room.
struct Places {
  struct Slot {
    NodeIndex node = 0;
    std::int32_t ranks = 0;

    friend bool operator==(const Slot&, const Slot&) = default;
  };
  std::vector<Slot> slots;            // ranks in the order of the fabric
  std::vector<std::int16_t> devices;  // of each rank in turn, as indices on its node

  std::int32_t ranks() const;
  friend bool operator==(const Places&, const Places&) = default;
};

// A shape, translated for one room.
struct Need {
  std::int32_t devices = 0;  // per rank
  std::int32_t share = 0;    // of each device
  std::int32_t cpus = 0;
  std::int64_t memory = 0;
  std::int32_t ranks_per_node = 0;
  Kinds kinds = 0;
  std::vector<NodeIndex> avoid = {};  // sorted; the sums of vertices do not know of it

  bool whole() const { return share == whole_share; }
  bool loose() const { return cpus == 0 && (devices == 0 || !whole()); }
};

class Room {
 public:
  Room() : Room(std::vector<NodeView>()) {}
  explicit Room(std::vector<NodeView> nodes);

  // ---- the tree, which stays as it is
  NodeIndex nodes() const;
  const NodeName& name(NodeIndex node) const;
  std::string location(NodeIndex node) const;
  std::optional<NodeIndex> find(const NodeName& name) const;
  std::int32_t device_count(NodeIndex node) const;

  struct Vertex {
    std::string name;  // of its last part: "rack3"
    VertexIndex parent = -1;
    Level level = Level::cluster;
    NodeIndex first = 0;   // its nodes, those of the vertices below it included
    NodeIndex last = 0;    // one past
    NodeIndex direct = 0;  // [first, direct) hang on it without a vertex between
    VertexIndex children_first = 0;
    VertexIndex children_last = 0;
  };
  const Vertex& vertex(VertexIndex at) const;
  // Those of one level, next to each other.
  std::pair<VertexIndex, VertexIndex> vertices(Level level) const;
  VertexIndex parent(NodeIndex node) const;
  // The largest number of devices of one kind on a node.
  std::int32_t widest() const;
  std::size_t kinds() const;
  const std::string& model(std::size_t kind) const;
  std::int64_t total_share(std::size_t kind) const;  // of all its devices, taken or not

  Need need(const Shape& shape) const;

  // ---- what is free
  bool open(NodeIndex node) const;
  void set_open(NodeIndex node, bool open);
  std::int32_t cpus_free(NodeIndex node) const { return free_[at(node)].cpus; }
  std::int64_t memory_free(NodeIndex node) const { return free_[at(node)].memory; }
  std::span<const std::int16_t> shares_free(NodeIndex node) const;
  std::size_t kind_of(NodeIndex node, std::int32_t device) const;
  // In thousandths, on open nodes.
  std::int64_t share_free(VertexIndex at, Kinds kinds) const;
  // Whole free devices of these kinds on a node, or on the open nodes of a vertex.
  std::int32_t whole_on(NodeIndex node, Kinds kinds) const;
  std::int32_t whole_in(VertexIndex at, Kinds kinds) const;
  // How many open nodes of a vertex have exactly so many whole free devices of a kind.
  std::int32_t nodes_with(VertexIndex at, std::size_t kind, std::int32_t whole) const;
  std::int32_t open_nodes() const { return open_nodes_; }
  // Grows with each change of the node.
  std::uint32_t version(NodeIndex node) const { return free_[at(node)].version; }

  // How many ranks the node can take now; `most` where nothing bounds it.
  std::int32_t capacity(const Need& need, NodeIndex node, std::int32_t most) const;
  // It has what more of them need, and cannot watch them.
  bool watches_too_few(const Need& need, NodeIndex node, std::int32_t most) const {
    return capacity(need, node, most) < unwatched_capacity(need, node, most);
  }

  // ---- changes
  // Picks devices for so many ranks on a node that has room for them, and appends them to `devices`. A share
  // goes to the fullest device that has room; whole devices come from the smallest island that has enough.
  void choose_devices(const Need& need, NodeIndex node, std::int32_t ranks,
                      std::vector<std::int16_t>& devices) const;
  // All of it is there and free?
  bool fits(const Shape& shape, const Places& places) const;
  // Devices that the room does not have are passed over: a node may have come back with fewer.
  void take(const Shape& shape, const Places& places) { change(shape, places, -1); }
  void give(const Shape& shape, const Places& places) { change(shape, places, 1); }

  // Is exactly the same free? Of two rooms of the same nodes.
  bool same_free(const Room& other) const;

  std::vector<RankPlace> expand(const Shape& shape, const Places& places) const;
  // Nothing if a node is unknown here, or a rank has another number of devices than the shape says.
  std::optional<Places> compact(const Shape& shape, const std::vector<RankPlace>& ranks) const;

 private:
  struct Layout;
  struct Free {
    std::int64_t memory = 0;
    std::int32_t cpus = 0;
    std::int32_t loose = 0;  // so many more ranks that ask for neither whole devices nor CPUs
    std::int32_t watch = 0;  // so many more can be watched, with what gangs count
    bool open = true;
    std::uint32_t version = 0;

    friend bool operator==(const Free& a, const Free& b) {
      return a.memory == b.memory && a.cpus == b.cpus && a.loose == b.loose && a.watch == b.watch &&
             a.open == b.open;
    }
  };
  struct Sum {
    std::int64_t share = 0;
    std::int32_t whole = 0;

    friend bool operator==(const Sum&, const Sum&) = default;
  };

  std::int32_t unwatched_capacity(const Need& need, NodeIndex node, std::int32_t most) const;
  void change(const Shape& shape, const Places& places, std::int32_t sign);
  void add_to_parents(NodeIndex node, std::int32_t sign);
  void recount(NodeIndex node);
  std::size_t spread_at(VertexIndex vertex, std::size_t kind) const;

  std::shared_ptr<const Layout> layout_;
  std::vector<std::int16_t> shares_;  // by device
  std::vector<Free> free_;            // by node
  std::vector<Sum> groups_;           // by group: the devices of one kind on one node
  std::vector<Sum> sums_;             // by vertex and kind
  std::vector<std::int32_t> spread_;  // by vertex, kind and number of whole devices: nodes
  std::int32_t open_nodes_ = 0;
};

}  // namespace tutti::sched
