#include "control/cluster/index.hpp"

#include "base/prng.hpp"
#include "control/cluster/cluster_test.hpp"
#include "control/cluster/parts_test.hpp"

namespace tutti::cluster {
namespace {

struct IndexTest : PartsTest {
  void SetUp() override {
    node("a", 8);
    Job& waits = job(1);
    Job& runs = job(2);
    place(runs, "a", {0});
    derive(state, now);
    for (auto& [name, node] : state.nodes) {
      node.greeted = true;
      state.index.changed(node);
    }
    static_cast<void>(state.index.room(state));
    ASSERT_EQ(broken(), "");
    ASSERT_FALSE(waits.placed());
  }
  std::string broken() const {
    const auto checked = invariants(state);
    return checked ? "" : checked.error().text();
  }
  void tell(std::uint64_t id) { derive(state, state.jobs.at(JobId(id)), now); }
};

TEST_F(IndexTest, NoticesWhatItWasNotTold) {
  state.jobs.at(JobId(1)).spec.priority = 7;
  EXPECT_EQ(broken(), "the index of waiting jobs is wrong");
  state.jobs.at(JobId(1)).spec.priority = 0;
  state.jobs.at(JobId(2)).master_port = 9;
  EXPECT_EQ(broken(), "the index of nodes and ports is wrong");
  state.jobs.at(JobId(2)).master_port = 0;
  state.jobs.at(JobId(2)).spec.user = "bob";
  EXPECT_EQ(broken(), "what queues and users use is counted wrong");
  state.jobs.at(JobId(2)).spec.user = "ada";
  state.jobs.at(JobId(2)).saved_at = now;
  EXPECT_EQ(broken(), "the index of running jobs is wrong");
  state.active.insert(JobId(77));
  EXPECT_EQ(broken(), "there are jobs in the sets of active and holding jobs that do not exist");
}

TEST_F(IndexTest, OneCallIsEnoughForEveryPart) {
  Job& gang = state.jobs.at(JobId(1));
  place(gang, "a", {3});
  tell(1);
  EXPECT_EQ(broken(), "");
  EXPECT_TRUE(state.index.jobs_on("a").contains(JobId(1)));
  EXPECT_EQ(state.index.use_of_queue("default", now).in_use, 2000);
  now += 60s;
  leave(gang, JobState::restarting);
  gang.attempt = 1;
  tell(1);
  EXPECT_EQ(broken(), "");
  EXPECT_EQ(state.index.snapshot(state, now).queued.size(), 1U);
  leave(gang, JobState::cancelled);
  tell(1);
  EXPECT_EQ(broken(), "");
  EXPECT_TRUE(state.index.snapshot(state, now).queued.empty());
}

TEST_F(IndexTest, WhatHasEndedIsCountedOnce) {
  Job& gang = state.jobs.at(JobId(2));
  now += 1h;
  leave(gang, JobState::succeeded);
  tell(2);
  const auto once = state.index.use_of_queue("default", now);
  const std::size_t ended = state.index.snapshot(state, now).past->of(0).size();
  tell(2);
  EXPECT_EQ(state.index.use_of_queue("default", now).past, once.past);
  EXPECT_EQ(state.index.snapshot(state, now).past->of(0).size(), ended);
}

// Whatever happens in whatever order, every part says what the state says: happen() checks it.
struct IndexWalk : ClusterTest {
  Prng prng{5};

  // One of the newest.
  JobId any() { return JobId(state.next_job - std::min(state.next_job, 1 + prng.below(40))); }
  NodeName any_node() { return std::to_string(prng.between(1, 4)); }

  void report_any() {
    const auto found = state.jobs.find(any());
    if (found == state.jobs.end() || !found->second.placed()) return;
    const Job& gang = found->second;
    const auto rank = static_cast<std::int32_t>(prng.below(gang.places.size()));
    RankStatus status{prng.chance(0.5) ? RankState::started : RankState::exited, prng.chance(0.8) ? 0 : 1,
                      ""};
    status.saved_at = prng.chance(0.5) ? now : Instant();
    happen(Reported{gang.places[static_cast<std::size_t>(rank)].node, {gang.id, gang.attempt, rank, status}});
  }

  void any_event() {
    switch (prng.below(8)) {
      case 0: {
        JobSpec gang = spec(static_cast<std::int32_t>(prng.between(1, 6)), prng.chance(0.5) ? 1000 : 500);
        gang.user = prng.chance(0.5) ? "ada" : "bob";
        gang.priority = static_cast<std::int32_t>(prng.below(3));
        gang.restart_on_failure = 2;
        happen(Submit{{gang}});
        return;
      }
      case 1:
        happen(Cancel{any(), "", false});
        return;
      case 2:
        join(any_node(), static_cast<int>(prng.between(6, 8)));
        return;
      case 3:
        happen(Drain{any_node(), prng.chance(0.5)});
        return;
      case 4:
        happen(Resume{any_node()});
        return;
      case 5:
        pass(prng.chance(0.2) ? 4s : 1s);
        return;
      default:
        report_any();
    }
  }
};

TEST_F(IndexWalk, EveryPartFollowsTheState) {
  for (const char* name : {"1", "2", "3", "4"}) join(name, 8);
  for (int event = 0; event < 2000 && !HasFailure(); ++event) any_event();
  EXPECT_GT(state.next_job, 100U);
}

}  // namespace
}  // namespace tutti::cluster
