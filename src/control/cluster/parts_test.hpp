// A state made by hand, for tests of the parts of the index: jobs and nodes that nobody drives.
#pragma once

#include <gtest/gtest.h>

#include "control/cluster/step.hpp"

namespace tutti::cluster {

struct PartsTest : testing::Test {
  State state;
  Instant now{1000s};

  Node& node(const NodeName& name, std::size_t gpus) {
    Node& node = state.nodes[name];
    node.name = name;
    node.address = "10.0.0." + name;
    node.greeted = true;
    node.inventory.devices.assign(gpus, {"H100", gib(80), "uuid"});
    return node;
  }
  Job& job(std::uint64_t id, std::int32_t ranks = 1) {
    Job& job = state.jobs[JobId(id)];
    job.id = JobId(id);
    job.spec.user = "ada";
    job.spec.shape = {.ranks = ranks, .gpu_share = sched::whole_share};
    job.submitted_at = job.queued_at = now;
    return job;
  }
  // One rank for each device.
  void place(Job& job, const NodeName& where, const std::vector<std::int32_t>& devices) {
    job.holds = true;
    job.state = JobState::running;
    job.started_at = now;
    job.places.clear();
    for (const std::int32_t device : devices) job.places.push_back({where, {{device, sched::whole_share}}});
    job.ranks.assign(job.places.size(), {});
  }
  void leave(Job& job, JobState next) {
    job.holds = false;
    job.served += static_cast<double>(job.places.size()) * in_seconds(now - job.started_at);
    job.state = next;
    if (job.finished()) job.finished_at = now;
  }
  Change change(const Job& job, Phase before, Phase after) const { return {state, job, before, after, now}; }
};

}  // namespace tutti::cluster
