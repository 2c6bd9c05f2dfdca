// A cluster with a scheduler beside it, for tests of the state machine.
#pragma once

#include <algorithm>

#include <gtest/gtest.h>

#include "control/cluster/step.hpp"

namespace tutti::cluster {

inline JobSpec spec(std::int32_t ranks, std::int32_t gpu_share = 1000) {
  JobSpec spec;
  spec.name = "job";
  spec.command = {"true"};
  spec.shape.ranks = ranks;
  spec.shape.gpu_share = gpu_share;
  return spec;
}

inline JobSpec elastic_spec(std::vector<std::int32_t> rank_counts) {
  JobSpec elastic = spec(rank_counts.front());
  elastic.shape.rank_counts = std::move(rank_counts);
  return elastic;
}

// A cluster with a scheduler beside it and agents that do what they are told only when the test says so.
struct ClusterTest : testing::Test {
  State state;
  Instant now{1000s};
  std::vector<Send> sends;

  void SetUp() override { derive(state, now); }

  Effects happen(const Event& event) {
    Effects effects = step(state, now, event);
    const auto checked = invariants(state);
    EXPECT_TRUE(checked.ok()) << (checked ? "" : checked.error().text());
    sends.insert(sends.end(), effects.sends.begin(), effects.sends.end());
    if (!state.index.doomed().empty()) happen(EndDoomed{});
    if (!state.fleets.due.empty()) happen(Tend{});
    if (effects.schedule) happen(planned());
    return effects;
  }

  Planned planned() { return {sched::schedule(snapshot(state, now), now), state.index.generation()}; }

  void join(const NodeName& name, int gpus, std::vector<RankReport> ranks = {}) {
    Hello hello{name, "", "10.0.0." + name, 1, {}, std::move(ranks)};
    for (int gpu = 0; gpu < gpus; ++gpu) hello.inventory.devices.push_back({"H100", gib(80), "uuid"});
    hello.inventory.cpus = 16;
    hello.inventory.memory = gib(64);
    happen(hello);
  }

  JobId submit(const JobSpec& what) {
    auto effects = happen(Submit{{what}});
    EXPECT_TRUE(effects.reply.ok()) << (effects.reply ? "" : effects.reply.error().text());
    return effects.reply ? effects.reply->front() : JobId();
  }

  Job& job(JobId id) { return state.jobs.at(id); }
  std::string why(JobId id) { return reason_of(state, job(id)); }

  void report(JobId id, std::int32_t rank, RankStatus status) {
    happen(Reported{job(id).places[static_cast<std::size_t>(rank)].node,
                    {id, job(id).attempt, rank, std::move(status)}});
  }
  void all_start(JobId id) {
    for (std::int32_t rank = 0; rank < rank_count(job(id)); ++rank) report(id, rank, {RankState::started});
  }
  void all_exit(JobId id, std::int32_t code = 0) {
    const std::int32_t attempt = job(id).attempt;
    for (std::int32_t rank = 0; rank < rank_count(job(id)); ++rank) {
      if (job(id).placed() && job(id).attempt == attempt) report(id, rank, {RankState::exited, code, ""});
    }
  }
  // The node is silent for longer than its lease, the others are not.
  void lose(const NodeName& silent) {
    now += lease;
    for (const auto& [name, node] : std::map(state.nodes)) {
      if (name != silent && !node.lost) happen(Heard{name});
    }
    pass(1s);
    EXPECT_TRUE(state.nodes.at(silent).lost);
  }
  void pass(Duration time) {
    now += time;
    happen(Tick{});
  }
  template <class T>
  std::size_t sent() const {
    return static_cast<std::size_t>(std::count_if(
        sends.begin(), sends.end(), [](const Send& s) { return std::holds_alternative<T>(s); }));
  }
};

}  // namespace tutti::cluster
