#include <gtest/gtest.h>

#include "control/driver/full_store_test.hpp"
#include "control/driver/turns.hpp"

namespace tutti::driver {
namespace {

struct FullDisk : testing::Test {
  FullStore store;
  Instant now{1000s};
  Turns turns{store, [this] { return now; }};

  void SetUp() override {
    ASSERT_TRUE(turns.load().ok());
    cluster::Hello hello{"a", "", "127.0.0.1", 1, {}, {}};
    hello.inventory.devices = {{"H100", gib(80), "u"}};
    hello.inventory.cpus = 2;
    happen(hello);
  }

  Turns::Outcome happen(cluster::Event event) {
    now += 1ms;
    std::vector<Item> items;
    items.push_back({std::move(event), [](auto) {}, nullptr});
    return turns.turn(std::move(items), false);
  }
  bool works(cluster::Event event) { return happen(std::move(event)).answers.front().result.ok(); }
  cluster::JobId submit() {
    cluster::JobSpec spec;
    spec.command = {"true"};
    spec.shape.gpu_share = 1000;
    auto outcome = happen(cluster::Submit{{spec}});
    auto& result = outcome.answers.front().result;
    return result ? result->front() : cluster::JobId();
  }
  cluster::JobState state_of(cluster::JobId id) const { return turns.state().jobs.at(id).state; }
};

TEST_F(FullDisk, WhatFreesRoomWorksAndNothingElse) {
  const auto running = submit();
  const auto waiting = submit();
  happen(cluster::Reported{"a", {running, 0, 0, {cluster::RankState::started}}});
  store.full = true;
  EXPECT_TRUE(works(cluster::Cancel{waiting, "", false})) << "also as the first to find the disk full";
  EXPECT_EQ(state_of(waiting), cluster::JobState::cancelled);
  EXPECT_FALSE(turns.health().ok);
  EXPECT_EQ(submit(), cluster::JobId());
  const auto outcome = happen(cluster::Cancel{running, "", false});
  EXPECT_EQ(outcome.delivery.messages.size(), 1U) << "its ranks are told to end";
  happen(cluster::Reported{"a", {running, 0, 0, {cluster::RankState::exited, 143, ""}}});
  EXPECT_EQ(state_of(running), cluster::JobState::cancelled) << "and their ends are heard";
  EXPECT_TRUE(works(cluster::Drain{"a", false}));
  EXPECT_FALSE(works(cluster::Resume{"a"}));
}

TEST_F(FullDisk, ARefusalLeavesTheCancelToWork) {
  submit();
  const auto waiting = submit();
  store.full = true;
  EXPECT_EQ(submit(), cluster::JobId());
  EXPECT_TRUE(works(cluster::Cancel{waiting, "", false}));
  EXPECT_EQ(state_of(waiting), cluster::JobState::cancelled);
}

TEST_F(FullDisk, IsNotReadAgainAndAgain) {
  store.full = true;
  EXPECT_EQ(submit(), cluster::JobId());
  const int loads = store.loads;
  for (int second = 0; second < 10; ++second) {
    now += 1s;
    turns.turn({}, false);
  }
  EXPECT_EQ(store.loads, loads) << "a large store takes its time to be read";
  store.full = false;
  now += 2s;
  turns.turn({}, false);
  EXPECT_TRUE(turns.health().ok);
}

TEST_F(FullDisk, WhatIsNotKeptIsRemovedFromTheStore) {
  Turns brief(store, [this] { return now; }, "", {.jobs_max = 2, .jobs_age_min = 0s});
  ASSERT_TRUE(brief.load().ok());
  for (int at = 0; at < 5; ++at) {
    std::vector<Item> items;
    cluster::JobSpec spec;
    spec.command = {"true"};
    items.push_back({cluster::Submit{{spec}}, nullptr, nullptr});
    items.push_back(
        {cluster::Cancel{cluster::JobId(static_cast<std::uint64_t>(at) + 1), "", false}, nullptr, nullptr});
    now += 1s;
    brief.turn(std::move(items), true);
  }
  now += 1s;
  std::vector<Item> shelved;
  shelved.push_back({cluster::AuditShelved{brief.state().audit.head.last}, nullptr, nullptr});
  brief.turn(std::move(shelved), true);
  EXPECT_EQ(brief.state().jobs.size(), 2U);
  EXPECT_EQ(store.load()->objects.size(), 7U)
      << "with what was asked for, the node, the cluster, and the newest lines of the audit log";
}

}  // namespace
}  // namespace tutti::driver
