// The scheduler: a function of an immutable snapshot. It decides which queued gangs start now and where; the
// state machine verifies the plan again before it becomes truth. Plain data and pure functions: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/id.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "sched/fabric.hpp"

namespace tutti::sched {

using JobId = Id<struct JobTag>;

// A device is shared in thousandths.
constexpr std::int32_t whole_share = 1000;

// A gang names at most so many numbers of ranks that it can run with.
constexpr std::size_t rank_counts_max = 256;

// What a gang needs. Zero means "not asked for" where it can.
struct Shape {
  std::int32_t ranks = 1;                 // as many as are wanted
  std::vector<std::int32_t> rank_counts;  // all it can run with, descending from `ranks`; none: only `ranks`
  std::int32_t ranks_per_node = 0;        // 0: as many as fit on a node
  std::int32_t nodes = 0;                 // 0: as few as fit
  std::int32_t gpu_share = 0;             // of devices, per rank: 250 is a quarter, 8000 eight whole devices
  std::int32_t cpus = 0;                  // per rank
  Bytes memory;                           // per rank
  std::string gpu_model;                  // "" any
  Bytes gpu_memory;                       // each device has at least this much

  friend bool operator==(const Shape&, const Shape&) = default;
};

struct DeviceView {
  std::string model;
  Bytes memory;
  std::int32_t share_free = whole_share;
};

struct NodeView {
  NodeName name;
  std::string location;
  std::vector<DeviceView> devices;
  std::int32_t cpus_free = 0;
  Bytes memory_free;
};

struct JobView {
  JobId id;
  std::int32_t attempt = 0;
  std::int32_t priority = 0;
  Instant submitted_at;
  Shape shape;
};

struct Snapshot {
  std::uint64_t revision = 0;
  std::vector<NodeView> nodes;        // only those that take work, by name
  std::vector<JobView> queued;        // only those that may start now
  std::map<JobId, std::string> held;  // the others, and what each waits for
  // The links between all nodes as they were last measured, shared with the state. No decision uses them yet.
  std::shared_ptr<const Fabric> fabric = std::make_shared<const Fabric>();
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

struct Placement {
  JobId job;
  std::int32_t attempt = 0;
  std::vector<RankPlace> ranks;  // by rank: as many as the gang starts with
};

struct Plan {
  std::uint64_t revision = 0;
  std::vector<Placement> starts;
  std::map<JobId, std::string> waiting;  // why each of the others waits
};

// Gangs in the order of priority, then submit time, then id; each whole or not at all, packed into few nodes,
// with the largest of its counts that fits. A gang of which none fits is passed over.
Plan schedule(const Snapshot& snapshot, Instant now);

// Places one gang of a sound shape on nodes as they are, with the largest of its counts that fits, or says
// why it cannot be placed. Fewer ranks take in proportion fewer nodes where the shape names a number of
// nodes. Takes what it places out of `nodes`.
Result<std::vector<RankPlace>> place(const Shape& shape, std::vector<NodeView>& nodes);

// Is this one of the numbers of ranks that the gang can run with?
bool runs_with(const Shape& shape, std::size_t ranks);

// Is the shape itself sound: counts in range, shares whole or below one device?
Result<> validate(const Shape& shape);

}  // namespace tutti::sched
