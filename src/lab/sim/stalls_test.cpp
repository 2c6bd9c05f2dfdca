// A small world without other faults, in which one loop stands still or the controller's clock is set: who is
// blamed for it.
#include <gtest/gtest.h>

#include "lab/sim/virtual_controller.hpp"
#include "lab/sim/virtual_node.hpp"

namespace tutti::sim {
namespace {

constexpr std::size_t stalls_nodes = 4;

struct Stalls : testing::Test {
  World world{1, stalls_nodes, true};
  VirtualController controller{world};
  std::vector<std::unique_ptr<VirtualNode>> nodes;

  void SetUp() override {
    for (std::size_t index = 0; index < stalls_nodes; ++index) {
      cluster::Hello self{"n" + std::to_string(index), "", "10.0.0.1", 0, {}, {}};
      self.inventory.devices = {{"H100", gib(80), "uuid"}};
      self.inventory.cpus = 4;
      nodes.push_back(std::make_unique<VirtualNode>(world, std::move(self),
                                                    [this, index]() -> std::optional<Network::Id> {
                                                      const Network::Id id = world.network.open(index);
                                                      controller.accept(id);
                                                      return id;
                                                    }));
    }
    world.network.set_calls({.message =
                                 [this](auto id, auto node, Side to, const auto& frame) {
                                   if (to == Side::agent) return nodes[node]->receive(id, frame);
                                   controller.receive(id, nodes[node]->name(), frame);
                                 },
                             .closed =
                                 [this](auto id, auto node, Side side) {
                                   if (side == Side::agent) return nodes[node]->closed(id);
                                   controller.closed(id, nodes[node]->name());
                                 }});
    controller.start();
    for (auto& node : nodes) node->power_on();
    pass(5s);
    ASSERT_EQ(controller.state().nodes.size(), stalls_nodes);
  }

  void pass(Duration time) {
    const Duration end = world.agenda.now() + time;
    while (world.agenda.run_next(end)) lost_ += lost();
  }
  std::size_t lost() const {
    if (!controller.up()) return 0;
    std::size_t count = 0;
    for (const auto& [name, node] : controller.state().nodes) count += node.lost ? 1 : 0;
    return count;
  }

  // It takes 3 s of its 6.
  void submit_limited() {
    cluster::JobSpec spec;
    spec.name = "limited";
    spec.command = {"succeed", "3000", "0", "1"};
    spec.shape.ranks = 2;
    spec.shape.gpu_share = 1000;
    spec.time_limit = 6s;
    controller.happen(cluster::Submit{{spec}}, nullptr);
    pass(1s);
    ASSERT_EQ(controller.state().jobs.at(cluster::JobId(1)).state, cluster::JobState::running);
  }
  void expect_success() {
    const cluster::Job& job = controller.state().jobs.at(cluster::JobId(1));
    EXPECT_EQ(job.state, cluster::JobState::succeeded) << job.reason;
    EXPECT_EQ(world.checks.violation(), "");
  }

  std::size_t lost_ = 0;  // at any time
};

TEST_F(Stalls, ANetworkLoopThatStandsStillLosesNobody) {
  ASSERT_TRUE(controller.stall(Stall::network, 20s));
  pass(40s);
  EXPECT_EQ(lost_, 0U);
}

TEST_F(Stalls, ANetworkLoopThatGoesRoundAndReadsNobodyLosesNobody) {
  ASSERT_TRUE(controller.stall(Stall::reading, 20s));
  pass(40s);
  EXPECT_EQ(lost_, 0U);
}

// So it is judged after each of them again: that it did not hear is no reason to believe for ever.
TEST_F(Stalls, WhoDiesWhileNobodyIsReadIsLostWhenTheOthersAre) {
  ASSERT_TRUE(controller.stall(Stall::reading, 20s));
  ASSERT_TRUE(nodes[2]->stall_agent());
  pass(20s);
  EXPECT_EQ(lost_, 0U);
  pass(10s);
  EXPECT_TRUE(controller.state().nodes.at("n2").lost);
  EXPECT_EQ(lost(), 1U);
}

TEST_F(Stalls, ACoreThatStandsStillLosesNobody) {
  ASSERT_TRUE(controller.stall(Stall::core, 20s));
  pass(40s);
  EXPECT_EQ(lost_, 0U);
}

TEST_F(Stalls, OfTheNetworkLoopFailNoJobThatEndedWithinItsLimit) {
  submit_limited();
  ASSERT_TRUE(controller.stall(Stall::network, 9s));
  pass(20s);
  expect_success();
}

TEST_F(Stalls, OfTheCoreFailNoJobThatEndedWithinItsLimit) {
  submit_limited();
  ASSERT_TRUE(controller.stall(Stall::core, 9s));
  pass(20s);
  expect_success();
}

TEST_F(Stalls, OfTheWholeControllerFailNoJobThatEndedWithinItsLimit) {
  submit_limited();
  ASSERT_TRUE(controller.stall(Stall::all, 9s));
  pass(20s);
  expect_success();
}

TEST_F(Stalls, ARestartFailsNoJobThatEndedWithinItsLimit) {
  submit_limited();
  ASSERT_TRUE(controller.kill());
  pass(8s);
  controller.start();
  pass(20s);
  expect_success();
}

// ---- clocks

struct ClockJumps : Stalls {
  // One of half a minute that is done after twenty seconds, and one that never is.
  void submit_both() {
    for (const char* program : {"succeed", "hang"}) {
      cluster::JobSpec spec;
      spec.name = program;
      spec.command = {program, "20000", "0", "1"};
      spec.shape.ranks = 2;
      spec.shape.gpu_share = 1000;
      spec.time_limit = 30s;
      spec.grace = 1s;
      controller.happen(cluster::Submit{{spec}}, nullptr);
      pass(1s);
    }
    pass(4s);
    for (const cluster::JobId id : {cluster::JobId(1), cluster::JobId(2)})
      ASSERT_EQ(controller.state().jobs.at(id).state, cluster::JobState::running);
  }
  const cluster::Job& hanging() const { return controller.state().jobs.at(cluster::JobId(2)); }
  // Twenty seconds after they have begun the one is done, ten seconds later the other is ended.
  void expect_both_end_in_time() {
    pass(18s);
    expect_success();
    EXPECT_FALSE(hanging().finished()) << hanging().reason;
    pass(20s);
    EXPECT_EQ(hanging().state, cluster::JobState::failed);
    EXPECT_EQ(hanging().reason, "ran past its time limit of 30s");
    EXPECT_EQ(lost_, 0U);
  }
};

TEST_F(ClockJumps, ForwardEndNoJobTooSoon) {
  submit_both();
  controller.jump_clock(5h);
  expect_both_end_in_time();
}

TEST_F(ClockJumps, BackLetNoJobRunForLonger) {
  submit_both();
  controller.jump_clock(-5h);
  expect_both_end_in_time();
}

TEST_F(ClockJumps, WhileTheControllerIsAwayAreNoticedWhenItIsBack) {
  submit_both();
  ASSERT_TRUE(controller.kill());
  controller.jump_clock(5h);
  pass(1s);
  controller.start();
  expect_both_end_in_time();
}

TEST_F(ClockJumps, OfAMachineThatStartedAnewAreToldByTheNodes) {
  submit_both();
  ASSERT_TRUE(controller.kill());
  controller.reboot(5h);
  pass(1s);
  controller.start();
  expect_both_end_in_time();
}

TEST_F(ClockJumps, BackOfAMachineThatStartedAnewAreToldByTheNodes) {
  submit_both();
  ASSERT_TRUE(controller.kill());
  controller.reboot(-5h);
  pass(1s);
  controller.start();
  expect_both_end_in_time();
}

// As services do that keep the date right, soon after a machine has started.
TEST_F(ClockJumps, OfAMachineThatIsSetRightAfterItsStartCostNothing) {
  submit_both();
  ASSERT_TRUE(controller.kill());
  controller.reboot(5h);
  controller.start();
  pass(200ms);
  controller.jump_clock(-5h);
  expect_both_end_in_time();
}

TEST_F(Stalls, AnAgentThatStandsStillIsLostAndComesBack) {
  ASSERT_TRUE(nodes[2]->stall_agent());
  pass(10s);
  EXPECT_TRUE(controller.state().nodes.at("n2").lost);
  EXPECT_EQ(lost(), 1U);
  nodes[2]->end_agent_stall();
  pass(10s);
  EXPECT_EQ(lost(), 0U);
}

}  // namespace
}  // namespace tutti::sim
