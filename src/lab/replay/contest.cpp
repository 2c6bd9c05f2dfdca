#include "lab/replay/contest.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "control/sched/sched.hpp"
#include "lab/replay/fleet.hpp"

namespace tutti::replay {
namespace {

constexpr std::int32_t node_gpus = 8;
constexpr std::int32_t node_cpus = 128;
constexpr std::int32_t holders = 1'000;  // users of what runs
constexpr std::int32_t askers = 5'000;   // users of what waits
constexpr Instant contest_time(std::chrono::hours(1'000));

using ShapePointer = std::shared_ptr<const sched::Shape>;

sched::Room make_room(std::int64_t gpus) {
  Fleet fleet;
  add_group(fleet, {.nodes = gpus / node_gpus, .gpus = node_gpus});
  std::vector<sched::NodeView> nodes;
  nodes.reserve(fleet.size());
  for (const FleetNode& node : fleet) {
    sched::NodeView view{node.name, node.location, {}, node_cpus, gib(1024), true};
    view.devices.assign(node_gpus, {"GPU", gib(80), sched::whole_share, 0});
    nodes.push_back(std::move(view));
  }
  return sched::Room(std::move(nodes));
}

// A full cluster and its queue.
class Crowd {
 public:
  explicit Crowd(std::int64_t gpus) {
    snapshot_.room = make_room(gpus);
    snapshot_.queues = {{.name = "default"}};
    for (std::int32_t user = 0; user < holders + askers; ++user)
      snapshot_.users.push_back({.name = "user" + std::to_string(user)});
  }

  sched::JobView& add(ShapePointer shape, std::uint32_t shape_class, std::int32_t user) {
    sched::JobView& job = jobs_.emplace_back();
    job.id = sched::JobId(jobs_.size());
    job.user = user;
    job.shape = std::move(shape);
    job.shape_class = shape_class;
    job.kind = shape_class;
    job.grace = 10s;
    snapshot_.shape_classes = std::max(snapshot_.shape_classes, shape_class + 1);
    return job;
  }

  // On this device of this node.
  sched::JobView& run(ShapePointer shape, std::uint32_t shape_class, sched::NodeIndex node,
                      std::int16_t device) {
    sched::JobView& job =
        add(std::move(shape), shape_class, static_cast<std::int32_t>(jobs_.size() % holders));
    job.places = {{{node, 1}}, {device}};
    job.started_at = contest_time - 100h;
    job.expected = 10'000h;
    snapshot_.room.take(*job.shape, job.places);
    snapshot_.queues[0].in_use += sched::whole_share;
    snapshot_.users[at(job.user)].in_use += sched::whole_share;
    return job;
  }

  void run_without_device(ShapePointer shape, std::uint32_t shape_class, sched::NodeIndex node) {
    sched::JobView& job = add(std::move(shape), shape_class, 0);
    job.started_at = contest_time - 100h;
    job.places = {{{node, 1}}, {}};
    snapshot_.room.take(*job.shape, job.places);
  }

  void wait(ShapePointer shape, std::uint32_t shape_class) {
    sched::JobView& job =
        add(std::move(shape), shape_class, holders + static_cast<std::int32_t>(jobs_.size() % askers));
    job.submitted_at = job.queued_at = contest_time - 1h;
    job.expected = 1min;
  }

  Result<double> pass() {
    snapshot_.queued.clear();
    snapshot_.running.clear();
    for (const sched::JobView& job : jobs_)
      (job.places.slots.empty() ? snapshot_.queued : snapshot_.running).push_back(&job);
    snapshot_.starts_max = 1'000;
    const auto began = std::chrono::steady_clock::now();
    const sched::Plan plan = sched::schedule(snapshot_, contest_time);
    const double took_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
    if (plan.waiting->jobs.size() + plan.starts.size() != snapshot_.queued.size())
      return failed("a pass forgot some of the gangs");
    return took_ms;
  }

  sched::NodeIndex nodes() const { return snapshot_.room.nodes(); }

 private:
  sched::Snapshot snapshot_;
  std::deque<sched::JobView> jobs_;
};

ShapePointer shared(sched::Shape shape) { return std::make_shared<const sched::Shape>(std::move(shape)); }

// A gang on each device. `stays`: the first of each node yields to nobody and has most of its CPUs.
void occupy(Crowd& world, bool stays, const ShapePointer& usual) {
  const auto large = shared({.ranks = 1, .gpu_share = sched::whole_share, .cpus = node_cpus - 2 * node_gpus});
  for (sched::NodeIndex node = 0; node < world.nodes(); ++node) {
    for (std::int16_t device = 0; device < node_gpus; ++device) {
      const bool first = stays && device == 0;
      world.run(first ? large : usual, first ? 1U : 0U, node, device).yields = !first;
    }
  }
}

Result<double> making_way(const ContestOptions& options) {
  Crowd world(options.gpus);
  occupy(world, false, shared({.ranks = 1, .gpu_share = sched::whole_share, .cpus = 1}));
  for (std::int64_t job = 0; job < options.jobs; ++job) {
    const std::int32_t size = 1 << (3 + job % 10);
    world.wait(shared({.ranks = size, .nodes = size / node_gpus, .gpu_share = sched::whole_share}),
               static_cast<std::uint32_t>(2 + job % 10));
  }
  return world.pass();
}

// The GPUs would suffice if others made way, the CPUs would not.
Result<double> in_vain(const ContestOptions& options, std::uint32_t shapes) {
  Crowd world(options.gpus);
  occupy(world, true, shared({.ranks = 1, .gpu_share = sched::whole_share, .cpus = 1}));
  for (std::int64_t job = 0; job < options.jobs; ++job) {
    const auto number = static_cast<std::uint32_t>(job % shapes);
    world.wait(shared({.ranks = 1 << (job % 13),
                       .gpu_share = sched::whole_share,
                       .cpus = node_cpus / 2,
                       .memory = Bytes(1 + number)}),
               2 + number);
  }
  return world.pass();
}

Result<double> growing(const ContestOptions& options) {
  Crowd world(options.gpus);
  const auto elastic = shared({.ranks = 4,
                               .rank_counts = {4, 3, 2, 1},
                               .gpu_share = sched::whole_share,
                               .cpus = node_cpus / node_gpus});
  for (sched::NodeIndex node = 0; node < world.nodes(); ++node) {
    // A device is left, and no CPU for it.
    for (std::int16_t device = 0; device + 1 < node_gpus; ++device) world.run(elastic, 0, node, device);
    const auto rest = shared({.ranks = 1, .cpus = node_cpus / node_gpus});
    world.run_without_device(rest, 1, node);
  }
  return world.pass();
}

}  // namespace

Result<Contest> contest(const ContestOptions& options) {
  if (options.gpus < node_gpus || options.gpus / node_gpus > fleet_nodes_max)
    return invalid("a cluster has from 8 to 800000 GPUs here");
  Contest out;
  const auto measure = [](Result<double> took, double& into) -> Result<> {
    if (!took) return std::move(took).error();
    into = *took;
    return {};
  };
  if (auto done = measure(making_way(options), out.making_way_ms); !done) return std::move(done).error();
  if (auto done = measure(in_vain(options, 100), out.in_vain_ms); !done) return std::move(done).error();
  if (auto done = measure(in_vain(options, static_cast<std::uint32_t>(options.jobs)), out.many_shapes_ms);
      !done)
    return std::move(done).error();
  if (auto done = measure(growing(options), out.growing_ms); !done) return std::move(done).error();
  return out;
}

}  // namespace tutti::replay
