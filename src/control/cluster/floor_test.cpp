#include "control/cluster/floor.hpp"

#include "control/cluster/parts_test.hpp"

namespace tutti::cluster {
namespace {

struct FloorTest : PartsTest {
  Habits habits;
  Floor floor;

  std::int32_t free() { return floor.free(state).whole_in(0, ~sched::Kinds{0}); }
  void run(Job& job, const std::vector<std::int32_t>& devices) {
    place(job, "a", devices);
    floor.changed(change(job, Phase::waiting, Phase::running), habits);
  }
};

TEST_F(FloorTest, WhatRunsIsNotFree) {
  node("a", 8);
  EXPECT_EQ(free(), 8);
  Job& gang = job(1, 3);
  run(gang, {0, 1, 2});
  EXPECT_EQ(free(), 5);
  EXPECT_EQ(floor.running(state).at(JobId(1)).places.ranks(), 3);
  leave(gang, JobState::succeeded);
  floor.changed(change(gang, Phase::running, Phase::ended), habits);
  EXPECT_EQ(free(), 8);
  EXPECT_FALSE(floor.runs(JobId(1)));
}

TEST_F(FloorTest, AViewFollowsItsJob) {
  node("a", 8);
  Job& gang = job(1);
  run(gang, {0});
  gang.saved_at = now;
  gang.ending = EndCause::preempted;
  floor.changed(change(gang, Phase::running, Phase::running), habits);
  EXPECT_EQ(floor.running().at(JobId(1)).saved_at, now);
  EXPECT_TRUE(floor.running().at(JobId(1)).ending);
  EXPECT_TRUE(floor.running().at(JobId(1)).makes_way);
}

TEST_F(FloorTest, AGracePeriodCountsFromWhenItWasTold) {
  node("a", 8);
  Job& gang = job(1);
  gang.spec.grace = 1h;
  run(gang, {0});
  const auto ends_by = [&] {
    floor.changed(change(gang, Phase::running, Phase::running), habits);
    return floor.running().at(JobId(1)).ends_by;
  };
  EXPECT_EQ(ends_by(), Instant());
  gang.ending = EndCause::cancelled;
  gang.told_at = now;
  EXPECT_EQ(ends_by(), now + 1h);
  EXPECT_FALSE(floor.running().at(JobId(1)).makes_way);
  gang.ending = EndCause::killed;
  EXPECT_EQ(ends_by(), now);
}

TEST_F(FloorTest, ANodeThatTakesNoWorkIsNotFreeButThere) {
  Node& only = node("a", 8);
  EXPECT_EQ(free(), 8);
  const auto generation = floor.generation();
  only.draining = true;
  floor.changed(only);
  EXPECT_EQ(free(), 0);
  EXPECT_EQ(floor.full(state).whole_in(0, ~sched::Kinds{0}), 8);
  EXPECT_EQ(floor.generation(), generation) << "the numbers are the same";
}

TEST_F(FloorTest, NewNodesAndOtherDevicesAreReadAtTheNextQuestion) {
  Node& first = node("b", 8);
  EXPECT_EQ(free(), 8);
  const auto generation = floor.generation();
  Job& gang = job(1, 2);
  node("a", 4);
  floor.changed(Node{}, state.nodes.at("a"));
  run(gang, {0, 1});
  EXPECT_EQ(free(), 10);
  EXPECT_NE(floor.generation(), generation) << "b has another number now";
  EXPECT_EQ(floor.running(state).at(JobId(1)).places.ranks(), 2);
  const Node before = first;
  floor.changed(before, first);
  EXPECT_EQ(floor.generation(), generation + 1) << "nothing has changed";
  first.inventory.devices.pop_back();
  floor.changed(before, first);
  EXPECT_EQ(free(), 9);
}

TEST_F(FloorTest, HowManyRanksANodeCanWatchIsReadAtTheNextQuestion) {
  Node& only = node("a", 8);
  EXPECT_TRUE(floor.ever_fits(state, {.ranks = 8, .gpu_share = sched::whole_share}));
  const Node before = only;
  only.inventory.watch_max = 8;
  floor.changed(before, only);
  EXPECT_FALSE(floor.ever_fits(state, {.ranks = 8, .gpu_share = sched::whole_share}));
  EXPECT_TRUE(floor.ever_fits(state, {.ranks = 7, .gpu_share = sched::whole_share}));
}

TEST_F(FloorTest, TellsWhichPartIsWrong) {
  Node& only = node("a", 8);
  Job& gang = job(1);
  EXPECT_EQ(free(), 8);
  run(gang, {0});
  const auto text = [&] {
    Habits anew;
    Floor fresh;
    for (const auto& [id, job] : state.jobs) fresh.changed(change(job, Phase::unknown, Phase::running), anew);
    const auto checked = floor.check(state, fresh);
    return checked ? "" : checked.error().text();
  };
  EXPECT_EQ(text(), "");
  only.draining = true;
  EXPECT_EQ(text(), "the index of free room is wrong");
  only.draining = false;
  gang.places[0].devices[0].device = 5;
  EXPECT_EQ(text(), "the index has other places for job 1");
  gang.saved_at = now;
  EXPECT_EQ(text(), "the index of running jobs is wrong");
}

TEST_F(FloorTest, WhetherAShapeCanEverRunIsWorkedOutOnce) {
  node("b", 0).inventory.cpus = 4;
  const sched::Shape cpus{.ranks = 1, .cpus = 4};
  for (int submit = 0; submit < 100; ++submit) EXPECT_TRUE(floor.ever_fits(state, cpus));
  EXPECT_EQ(floor.searches(), 1U);
  Node& more = node("c", 0);
  floor.changed(Node{}, more);
  EXPECT_TRUE(floor.ever_fits(state, cpus));
  EXPECT_EQ(floor.searches(), 2U) << "nodes have changed";
}

}  // namespace
}  // namespace tutti::cluster
