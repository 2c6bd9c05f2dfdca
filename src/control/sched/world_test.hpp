// A small cluster for tests of the scheduler: nodes, and gangs that wait or run on them. Owns what a snapshot
// points to.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "control/sched/sched.hpp"

namespace tutti::sched {

inline NodeView node(const std::string& name, int gpus, const std::string& model = "H100", int cpus = 16,
                     const std::string& location = "") {
  NodeView view{.name = name, .location = location, .cpus_free = cpus, .memory_free = gib(64)};
  for (int gpu = 0; gpu < gpus; ++gpu) view.devices.push_back({model, gib(80), whole_share, 0});
  return view;
}

// A gang of so many ranks, a GPU each.
inline Shape gpus(int ranks, const std::string& model = "") {
  return {.ranks = ranks, .gpu_share = whole_share, .gpu_model = model};
}

inline std::set<std::string> nodes_of(const std::vector<RankPlace>& places) {
  std::set<std::string> names;
  for (const auto& place : places) names.insert(place.node);
  return names;
}

struct World {
  Room room;
  std::vector<QueueView> queues{{.name = "default"}};
  std::vector<UserView> users{{.name = "ada"}};
  std::vector<Held> held;
  std::deque<JobView> jobs;
  Past past;
  std::map<Shape, std::uint32_t, ShapeOrder> classes;

  explicit World(std::vector<NodeView> nodes) : room(std::move(nodes)) {}

  JobView& add(std::uint64_t id, const Shape& shape, int priority = 0, Instant at = {}) {
    JobView& job = jobs.emplace_back();
    job.id = JobId(id);
    job.priority = priority;
    job.submitted_at = at;
    job.shape = std::make_shared<const Shape>(shape);
    job.shape_class = job.kind = classes.try_emplace(shape, classes.size()).first->second;
    return job;
  }

  // One that runs already, wherever there is room.
  JobView& run(std::uint64_t id, const Shape& shape, Instant started = {}, int priority = 0) {
    JobView& job = add(id, shape, priority);
    job.started_at = started;
    job.places = place(room, shape, TightestNode()).value();
    room.take(shape, job.places);
    const std::int64_t share = std::int64_t{job.places.ranks()} * shape.gpu_share;
    for (QueueIndex queue = job.queue; queue >= 0; queue = queues[static_cast<std::size_t>(queue)].parent)
      queues[static_cast<std::size_t>(queue)].in_use += share;
    users[static_cast<std::size_t>(job.user)].in_use += share;
    return job;
  }

  Snapshot snapshot() const {
    Snapshot snapshot;
    snapshot.revision = 7;
    snapshot.room = room;
    snapshot.queues = queues;
    snapshot.users = users;
    snapshot.held = held;
    snapshot.past = &past;
    snapshot.shape_classes = static_cast<std::uint32_t>(classes.size());
    for (const JobView& job : jobs)
      (job.places.slots.empty() ? snapshot.queued : snapshot.running).push_back(&job);
    return snapshot;
  }

  Plan plan(Instant now = {}) const { return schedule(snapshot(), now); }
};

inline std::string why(const Plan& plan, std::uint64_t id) {
  const std::string* found = plan.waiting->find(JobId(id));
  return found == nullptr ? "(does not wait)" : *found;
}

inline std::vector<std::uint64_t> started(const Plan& plan) {
  std::vector<std::uint64_t> ids;
  for (const Start& start : plan.starts) ids.push_back(start.job.number());
  return ids;
}

inline std::vector<std::uint64_t> stopped(const Plan& plan) {
  std::vector<std::uint64_t> ids;
  for (const Stop& stop : plan.stops) ids.push_back(stop.job.number());
  return ids;
}

}  // namespace tutti::sched
