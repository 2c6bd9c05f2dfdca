// The scheduler: a function of an immutable snapshot. It decides which queued gangs start now and where,
// which running ones make way, and what is promised to those that wait; the state machine verifies the plan
// again before it becomes truth. Plain data and pure functions: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "control/sched/fabric.hpp"
#include "control/sched/mix.hpp"
#include "control/sched/past.hpp"
#include "control/sched/place.hpp"
#include "control/sched/room.hpp"
#include "control/sched/shape.hpp"

namespace tutti::sched {

using QueueIndex = std::int32_t;
using UserIndex = std::int32_t;

constexpr std::int64_t no_limit = -1;
constexpr Instant never = Instant::max();

// The first so many gangs that cannot start are promised a time and a place.
constexpr std::size_t promises_max = 4;
// Room is kept from others for a promise that comes within this time: what stands empty for longer would cost
// more than the gang does that waits. In one pass so many shapes are found to come later.
constexpr Duration promise_kept_for = 24h;
constexpr std::size_t late_shapes_max = 16;
// A gang that runs with fewer ranks than it wants is not restarted with more before it has run this long.
constexpr Duration grow_after = 10min;
// For what has ended within this time room is kept empty. What takes longer, because its grace period is
// long, is a gang that runs and whose end is known: room is promised for then, and used until then.
constexpr Duration soon_max = 1min;

// ---- what there is

struct QueueView {
  std::string name;
  QueueIndex parent = -1;      // comes before it
  std::int64_t guarantee = 0;  // in thousandths of devices, like all of these
  std::int64_t limit = no_limit;
  std::int64_t user_limit = no_limit;
  double weight = 1;
  std::int64_t in_use = 0;  // with the queues below it
  double past = 0;          // what it used lately, on average
};

// One user of one queue.
struct UserView {
  std::string name;
  QueueIndex queue = 0;
  std::int64_t in_use = 0;
  double past = 0;
};

struct JobView {
  JobId id;
  std::int32_t attempt = 0;
  std::int32_t priority = 0;
  Instant submitted_at;
  Instant queued_at;  // when it came into the queue, or came back
  std::shared_ptr<const Shape> shape;
  std::uint32_t shape_class = 0;  // equal for equal shapes
  std::uint32_t kind = 0;         // equal for equal shapes of one user in one queue
  QueueIndex queue = 0;
  UserIndex user = 0;
  Duration grace{};
  Duration time_limit{};  // 0: none
  // How long it will run: its limit and its grace, or what its user's jobs usually take; 0: unknown.
  Duration expected{};
  Duration remaining{};  // how long it really will: only simulations know, and only policies that say so look
  double served = 0;     // device-seconds it has had, of earlier attempts
  bool yields = false;   // it saves its work when asked to end, so it may be put aside for work that had less

  // Of a running one:
  Instant started_at;
  Instant saved_at;  // its last checkpoint; zero: none in this attempt
  bool ending = false;
  Instant ends_by;         // of an ending one: at the latest; zero if nobody knows when it was told
  bool makes_way = false;  // of an ending one: for the sake of others, or to grow; it comes back
  Places places;
};

struct Held {
  JobId job;
  std::string why;
};

// Points into the state that it was made from: it lives until that changes.
struct Snapshot {
  std::uint64_t revision = 0;
  Room room;
  std::vector<const JobView*> queued;   // those that may start now
  std::vector<const JobView*> running;  // those that hold places, the ending ones too
  std::vector<Held> held;               // what waits for something else than room
  std::vector<QueueView> queues;        // parents first; at least one
  std::vector<UserView> users;
  std::uint32_t shape_classes = 0;  // all classes are below this
  // A pass starts no more than these: whoever must answer others meanwhile asks again.
  std::size_t starts_max = std::numeric_limits<std::size_t>::max();
  const Past* past = &no_past;
  std::shared_ptr<const Mix> mix = std::make_shared<const Mix>();
  // The links between all nodes as they were last measured, shared with the state.
  std::shared_ptr<const Fabric> fabric = std::make_shared<const Fabric>();
};

// ---- what is to be done

struct Start {
  JobId job;
  std::int32_t attempt = 0;
  Places places;
};

struct Stop {
  JobId job;
  std::int32_t attempt = 0;
  std::string why;
};

struct Promise {
  JobId job;
  Instant start;
  Places places;
};

// The room for this one is being made: others end for it, or end anyway.
struct Soon {
  JobId job;
  Instant start;  // at the latest
};

// Why each of those that do not start waits.
struct Waiting {
  struct Entry {
    JobId job;
    std::uint32_t why = 0;
  };
  std::vector<Entry> jobs;  // by id
  std::vector<std::string> whys;

  const std::string* find(JobId job) const;
};

struct Plan {
  std::uint64_t revision = 0;
  std::vector<Start> starts;
  std::vector<Stop> stops;
  std::vector<Promise> promises;
  std::vector<Soon> soon;
  std::shared_ptr<const Waiting> waiting = std::make_shared<const Waiting>();
  bool more = false;     // it has started as many as it may: others are still to be looked at
  Instant wake = never;  // the plan may change by then although nothing happens
};

// ---- policies

struct Policy {
  std::string_view name;
  std::string_view assumes;  // one line for people
  Plan (*schedule)(const Snapshot& snapshot, Instant now);
};

std::span<const Policy> policies();
Result<const Policy*> find_policy(std::string_view name);

// The default policy.
Plan schedule(const Snapshot& snapshot, Instant now);

// ---- time

// When it is expected to end if it started at `start`; `never` if nothing is known. Not in the past.
Instant expected_end(const JobView& job, Instant start, Instant now);

// When one that runs has left its room: one that is ending at the latest, others as they are expected to.
Instant release_of(const JobView& job, Instant now);

// Has it ended soon if it is told now, or was told before?
bool ends_soon(const JobView& gang, Instant now);

// How much it has had by now, in device-seconds.
double served_by(const JobView& job, Instant now);

// ---- size

// The devices it uses, or wants: 2.5 are two and a half.
double devices_of(const JobView& job);

// In thousandths of devices: with so many ranks, with the fewest that it does with, and of one that runs.
std::int64_t share_with(const JobView& job, std::int32_t ranks);
std::int64_t least_share(const JobView& job);
std::int64_t held_share(const JobView& job);

}  // namespace tutti::sched
