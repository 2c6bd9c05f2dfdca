// What a gang asks for, and what the scheduler sees of the machines it asks for it from. Plain data: any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.hpp"
#include "base/result.hpp"
#include "base/units.hpp"

namespace tutti::sched {

using JobId = Id<struct JobTag>;
using NodeName = std::string;

// A device is shared in thousandths.
constexpr std::int32_t whole_share = 1000;

// A gang names at most so many numbers of ranks that it can run with.
constexpr std::size_t rank_counts_max = 256;

// The parts of a location, site/pod/rack/nvlink, outermost first. A node whose location does not name a level
// stands alone there: its NVLink group is usually the node itself.
enum class Level { cluster, site, pod, rack, nvlink };
constexpr std::size_t levels = 5;

std::string_view name_of(Level level);
// "pod", "rack" …
Result<Level> parse_level(std::string_view text);

// What a gang needs. Zero means "not asked for" where it can.
struct Shape {
  std::int32_t ranks = 1;                 // as many as are wanted
  std::vector<std::int32_t> rank_counts;  // all it can run with, descending from `ranks`; none: only `ranks`
  std::int32_t ranks_per_node = 0;        // 0: as many as fit on a node
  std::int32_t nodes = 0;                 // 0: as few as fit
  std::int32_t gpu_share = 0;             // of devices, per rank: 250 is a quarter, 8000 eight whole devices
  std::int32_t cpus = 0;                  // per rank
  Bytes memory;                           // per rank
  std::string gpu_model;                  // "" any; "A100|H100" one of these
  Bytes gpu_memory;                       // each device has at least this much
  Level within = Level::cluster;          // all ranks stand in one such part of the fabric
  std::vector<NodeName> avoid = {};       // sorted: it was tried there, and what it brings does not fit

  friend bool operator==(const Shape&, const Shape&) = default;
};

// An order over shapes, for maps: equal shapes meet the same answer.
struct ShapeOrder {
  bool operator()(const Shape& a, const Shape& b) const;
};

struct DeviceView {
  std::string model;
  Bytes memory;
  std::int32_t share_free = whole_share;
  std::int32_t island = 0;  // devices of one island of the node are closest to each other
};

struct NodeView {
  NodeName name;
  std::string location;
  std::vector<DeviceView> devices;
  std::int32_t cpus_free = 0;
  Bytes memory_free;
  bool open = true;            // takes work
  std::int32_t watch_max = 0;  // ranks that it can watch, each gang counting as one more; 0: any number
};

struct DeviceShare {
  std::int32_t device = 0;  // its index on the node
  std::int32_t share = 0;

  friend bool operator==(const DeviceShare&, const DeviceShare&) = default;
};

// Where one rank goes.
struct RankPlace {
  NodeName node;
  std::vector<DeviceShare> devices;

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

// Is the shape itself sound: counts in range, shares whole or below one device?
Result<> validate(const Shape& shape);

// The counts it can run with, descending. The shape must outlive them.
std::span<const std::int32_t> counts_of(const Shape& shape);

// Is this one of the numbers of ranks that the gang can run with?
bool runs_with(const Shape& shape, std::size_t ranks);

// The nodes of a gang that starts with so many ranks, where the shape names a number of nodes; else 0.
std::int32_t nodes_for(const Shape& shape, std::int32_t ranks);

// How many devices one rank uses, in whole or in part.
inline std::int32_t devices_each(const Shape& shape) {
  return shape.gpu_share < whole_share ? (shape.gpu_share > 0 ? 1 : 0) : shape.gpu_share / whole_share;
}
// What it takes of each of them.
inline std::int32_t share_each(const Shape& shape) {
  return shape.gpu_share < whole_share ? shape.gpu_share : whole_share;
}

// "16 ranks on 2 nodes of 1 GPU H100, 4 CPUs".
std::string describe_need(const Shape& shape);

// "2", "0.25": a share in GPUs.
std::string format_gpus(std::int64_t share);

}  // namespace tutti::sched
