#include "lab/replay/scale.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <map>
#include <memory>

#include <unistd.h>

#include "base/prng.hpp"
#include "control/sched/sched.hpp"
#include "lab/replay/fleet.hpp"

namespace tutti::replay {
namespace {

constexpr std::int32_t gpus_each = 8;
constexpr int largest = 12;       // as a power of two: 4,096
constexpr double decline = 0.62;  // gangs of twice the size are seen so much less often

using Clock = std::chrono::steady_clock;

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  long all = 0;
  long resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

std::int32_t draw_size(Prng& prng) {
  int power = 0;
  while (power < largest && prng.chance(decline)) ++power;
  return 1 << power;
}

struct Queue {
  std::vector<sched::JobView> jobs;
  std::uint32_t classes = 0;
};

Queue make_queue(const ScaleOptions& options) {
  Prng prng(options.seed);
  Queue queue;
  std::map<std::int32_t, std::pair<std::shared_ptr<const sched::Shape>, std::uint32_t>> shapes;
  for (std::int64_t at = 0; at < options.jobs; ++at) {
    const std::int32_t size = draw_size(prng);
    auto& [shape, number] = shapes[size];
    if (shape == nullptr) {
      // Ranks of one device, and all of the nodes that a large gang is on.
      shape = std::make_shared<const sched::Shape>(
          sched::Shape{.ranks = size, .nodes = size > gpus_each ? size / gpus_each : 0, .gpu_share = 1000});
      number = queue.classes++;
    }
    sched::JobView& job = queue.jobs.emplace_back();
    job.id = sched::JobId(queue.jobs.size());
    job.submitted_at = Instant(std::chrono::seconds(at));
    job.shape = shape;
    job.shape_class = number;
    job.expected = std::chrono::minutes(prng.between(10, 3000));
  }
  return queue;
}

// Each user is of one queue.
void crowd(Queue& queue, sched::Snapshot& snapshot) {
  snapshot.queues.clear();
  for (std::int32_t at = 0; at < crowd_queues; ++at)
    snapshot.queues.push_back({.name = "queue" + std::to_string(at)});
  snapshot.users.clear();
  for (std::int32_t at = 0; at < crowd_users; ++at)
    snapshot.users.push_back({.name = "user" + std::to_string(at), .queue = at % crowd_queues});
  for (sched::JobView& job : queue.jobs) {
    job.user = static_cast<sched::UserIndex>(job.id.number() % crowd_users);
    job.queue = job.user % crowd_queues;
  }
}

Result<double> measure_pass(const sched::Snapshot& snapshot, Instant now) {
  const auto began = Clock::now();
  const sched::Plan plan = sched::schedule(snapshot, now);
  const double took_ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  if (plan.waiting->jobs.size() + plan.starts.size() != snapshot.queued.size())
    return failed("a pass forgot some of the gangs");
  return took_ms;
}

}  // namespace

Result<Scaled> scale(const ScaleOptions& options) {
  if (options.gpus < gpus_each || options.gpus / gpus_each > fleet_nodes_max)
    return invalid("a cluster has from 8 to 800000 GPUs here");
  Fleet fleet;
  add_group(fleet, {.nodes = options.gpus / gpus_each, .gpus = gpus_each});
  std::vector<sched::NodeView> nodes;
  nodes.reserve(fleet.size());
  for (const FleetNode& node : fleet) {
    sched::NodeView view{node.name, node.location, {}, node.inventory.cpus, node.inventory.memory, true};
    view.devices.assign(gpus_each, {"GPU", gib(80), sched::whole_share, 0});
    nodes.push_back(std::move(view));
  }
  const sched::Room empty(std::move(nodes));
  Queue queue = make_queue(options);
  Scaled out;
  out.nodes = empty.nodes();
  sched::Snapshot snapshot;
  snapshot.queues = {{.name = "default"}};
  snapshot.users = {{.name = ""}};
  snapshot.shape_classes = queue.classes;

  // The queue in turns of what fills the cluster: each pass sees only so many gangs that all of them fit, or
  // nearly so, and the next one an empty cluster.
  Clock::duration placing{};
  std::vector<sched::Plan> last;
  std::size_t next = 0;
  while (next < queue.jobs.size()) {
    snapshot.room = empty;
    snapshot.queued.clear();
    std::int64_t wanted = 0;
    while (next < queue.jobs.size() && wanted + queue.jobs[next].shape->ranks <= options.gpus * 9 / 10) {
      wanted += queue.jobs[next].shape->ranks;
      snapshot.queued.push_back(&queue.jobs[next++]);
    }
    if (snapshot.queued.empty()) {
      ++next;  // larger than nine tenths of the cluster
      continue;
    }
    const auto began = Clock::now();
    last.assign(1, sched::schedule(snapshot, Instant(std::chrono::seconds(options.jobs))));
    placing += Clock::now() - began;
    out.placements += static_cast<std::int64_t>(last.front().starts.size());
    out.mean_gpus += static_cast<double>(wanted);
  }
  out.mean_gpus /= static_cast<double>(options.jobs);
  out.placements_per_s = static_cast<double>(out.placements) / std::chrono::duration<double>(placing).count();

  // A cluster that is full, and all of the queue.
  Prng prng(options.seed + 1);
  std::deque<sched::JobView> running;
  const sched::TightestNode tightest;
  snapshot.room = empty;
  for (int misses = 0; misses < 100;) {
    sched::JobView job = queue.jobs[prng.below(queue.jobs.size())];
    auto places = sched::place(snapshot.room, *job.shape, tightest);
    if (!places) {
      ++misses;
      continue;
    }
    snapshot.room.take(*job.shape, *places);
    job.places = std::move(*places);
    job.id = sched::JobId(queue.jobs.size() + running.size() + 1);
    job.started_at = Instant(std::chrono::seconds(options.jobs));
    running.push_back(std::move(job));
  }
  snapshot.queued.clear();
  for (const sched::JobView& job : queue.jobs) snapshot.queued.push_back(&job);
  for (const sched::JobView& job : running) snapshot.running.push_back(&job);
  const Instant later(std::chrono::seconds(options.jobs + 60));
  const auto pass_ms = measure_pass(snapshot, later);
  if (!pass_ms) return pass_ms.error();
  out.pass_ms = *pass_ms;
  crowd(queue, snapshot);
  const auto crowd_pass_ms = measure_pass(snapshot, later);
  if (!crowd_pass_ms) return crowd_pass_ms.error();
  out.crowd_pass_ms = *crowd_pass_ms;
  out.resident_mib = resident_mib();
  return out;
}

}  // namespace tutti::replay
