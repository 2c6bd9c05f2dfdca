// The first policy. Assumes: nothing about durations; a gang that does not fit now may be overtaken by one
// that does, and one that can start with fewer ranks than it wants does not wait for the rest.
#include <algorithm>
#include <map>
#include <tuple>

#include "sched/sched.hpp"

namespace tutti::sched {
namespace {

struct ShapeOrder {
  static auto key(const Shape& s) {
    return std::tie(s.ranks, s.rank_counts, s.ranks_per_node, s.nodes, s.gpu_share, s.cpus, s.memory,
                    s.gpu_model, s.gpu_memory);
  }
  bool operator()(const Shape& a, const Shape& b) const { return key(a) < key(b); }
};

std::vector<const JobView*> in_order(const Snapshot& snapshot) {
  std::vector<const JobView*> jobs;
  jobs.reserve(snapshot.queued.size());
  for (const JobView& job : snapshot.queued) jobs.push_back(&job);
  std::stable_sort(jobs.begin(), jobs.end(), [](const JobView* a, const JobView* b) {
    return std::tuple(-a->priority, a->submitted_at, a->id) <
           std::tuple(-b->priority, b->submitted_at, b->id);
  });
  return jobs;
}

}  // namespace

Plan schedule(const Snapshot& snapshot, Instant /*now*/) {
  Plan plan;
  plan.revision = snapshot.revision;
  plan.waiting = snapshot.held;
  std::vector<NodeView> nodes = snapshot.nodes;
  // Room only shrinks within a pass: what did not fit once is not tried again.
  std::map<Shape, std::string, ShapeOrder> refused;
  for (const JobView* job : in_order(snapshot)) {
    if (const auto known = refused.find(job->shape); known != refused.end()) {
      plan.waiting[job->id] = known->second;
      continue;
    }
    auto places = place(job->shape, nodes);
    if (places) {
      plan.starts.push_back({job->id, job->attempt, std::move(*places)});
    } else {
      plan.waiting[job->id] = refused[job->shape] = places.error().message();
    }
  }
  return plan;
}

}  // namespace tutti::sched
