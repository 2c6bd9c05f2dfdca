#include "control/controller/core.hpp"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "control/controller/slow_store_test.hpp"
#include "control/wire/objects.hpp"

namespace tutti::controller {
namespace {

cluster::Hello hello(const std::string& name) {
  cluster::Hello hello{name, "", "127.0.0.1", 1, {}, {}};
  hello.inventory.devices = {{"H100", gib(80), "u"}};
  hello.inventory.cpus = 2;
  return hello;
}

cluster::Submit submit() {
  cluster::JobSpec spec;
  spec.name = "job";
  spec.command = {"true"};
  spec.shape.gpu_share = 1000;
  return {{spec}};
}

// A core with a store that fails when told to, and a record of what became visible.
class CoreTest : public testing::Test {
 protected:
  void SetUp() override { make(); }

  void make() {
    core_ = std::make_unique<Core>(store_, [this](driver::Delivery delivery) {
      const std::lock_guard lock(mutex_);
      for (auto& message : delivery.messages) messages_.push_back(std::move(message));
      resyncs_ += delivery.resync ? 1 : 0;
    });
    ASSERT_TRUE(core_->start().ok());
  }

  Result<std::vector<cluster::JobId>> happen(cluster::Event event) {
    std::promise<Result<std::vector<cluster::JobId>>> done;
    core_->happen(std::move(event), [&](auto result) { done.set_value(std::move(result)); });
    return done.get_future().get();
  }

  // How many jobs there are, and whether the store is well.
  std::pair<std::size_t, bool> look() {
    std::promise<std::pair<std::size_t, bool>> seen;
    core_->ask([&](const cluster::State& state, const wire::StoreHealth& health) {
      seen.set_value({state.jobs.size(), health.ok});
    });
    return seen.get_future().get();
  }

  std::size_t starts() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(messages_.begin(), messages_.end(), [](const auto& message) { return message.start; }));
  }
  int resyncs() {
    const std::lock_guard lock(mutex_);
    return resyncs_;
  }

  store::MemoryStore store_;
  std::mutex mutex_;
  std::vector<driver::Delivery::Message> messages_;
  int resyncs_ = 0;
  std::unique_ptr<Core> core_;
};

TEST_F(CoreTest, AnswersAfterTheCommitAndStartsWhatFits) {
  ASSERT_TRUE(happen(hello("a")).ok());
  const auto ids = happen(submit());
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->front(), cluster::JobId(1));
  EXPECT_EQ(starts(), 1U);
  EXPECT_EQ(store_.load()->objects.size(), 5U)
      << "the node, the job, what was asked for, what ids were given out, and the audit log";
}

TEST_F(CoreTest, WhatWasAcceptedSurvivesARestart) {
  ASSERT_TRUE(happen(hello("a")).ok());
  ASSERT_TRUE(happen(submit()).ok());
  core_.reset();
  make();
  EXPECT_EQ(look().first, 1U);
  // The agent knows nothing of the rank: its start was stored and never sent.
  const std::size_t before = starts();
  ASSERT_TRUE(happen(hello("a")).ok());
  EXPECT_EQ(starts(), before + 1);
  EXPECT_EQ(happen(submit())->front(), cluster::JobId(2)) << "ids go on";
}

TEST_F(CoreTest, TheFabricSurvivesARestart) {
  ASSERT_TRUE(happen(hello("a")).ok());
  ASSERT_TRUE(happen(hello("b")).ok());
  ASSERT_TRUE(happen(cluster::FabricMeasured{{{"a", "b", 5us, Bytes(1000), {}}}}).ok());
  const auto fabric = [this] {
    std::promise<cluster::Fabric> seen;
    core_->ask([&](const cluster::State& state, const wire::StoreHealth&) { seen.set_value(*state.fabric); });
    return seen.get_future().get();
  };
  const cluster::Fabric before = fabric();
  EXPECT_EQ(before.size(), 1U);
  core_.reset();
  make();
  EXPECT_EQ(fabric(), before);
}

TEST_F(CoreTest, ACommitThatFailsChangesNothingAndTellsNobody) {
  ASSERT_TRUE(happen(hello("a")).ok());
  store_.fail_next(store::CommitResult::Status::unknown, false);
  const auto refused = happen(submit());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::failed);
  EXPECT_NE(refused.error().message().find("it could not be stored"), std::string::npos);
  EXPECT_EQ(starts(), 0U);
  EXPECT_EQ(look().first, 0U);
  EXPECT_GE(resyncs(), 1) << "what agents said in this batch is lost, so they are asked again";
  // The next probe finds the store well again.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!look().second && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(look().second);
  EXPECT_TRUE(happen(submit()).ok());
}

TEST_F(CoreTest, ACommitThatMayHaveLandedIsReadBack) {
  ASSERT_TRUE(happen(hello("a")).ok());
  store_.fail_next(store::CommitResult::Status::unknown, true);
  EXPECT_TRUE(happen(submit()).ok()) << "it is stored, and the answer is true";
  EXPECT_EQ(look().first, 1U);
}

TEST_F(CoreTest, AnotherWriterIsNoticed) {
  ASSERT_TRUE(happen(hello("a")).ok());
  store_.fail_next(store::CommitResult::Status::conflict, false);
  EXPECT_FALSE(happen(submit()).ok());
  EXPECT_EQ(look().first, 0U);
}

TEST_F(CoreTest, EventsDoNotWaitForAllPagesThatAreDear) {
  std::promise<void> asked;
  std::shared_future<void> all_asked = asked.get_future();
  std::mutex mutex;
  std::string order;
  const auto add = [&](char what) {
    const std::lock_guard lock(mutex);
    order += what;
  };
  std::promise<void> last;
  const auto dear = [&] {
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < looks_time_max) std::this_thread::yield();
    add('p');
  };
  const auto look = [&](Core::Query query) { EXPECT_TRUE(core_->look("10.0.0.1", std::move(query))); };
  look([&](const auto&, const auto&) {
    all_asked.wait();
    dear();
  });
  look([&](const auto&, const auto&) { dear(); });
  look([&](const auto&, const auto&) {
    add('p');
    last.set_value();
  });
  core_->happen(hello("a"), [&](const auto&) { add('e'); });
  asked.set_value();
  last.get_future().wait();
  EXPECT_EQ(order, "pepp") << "one page has taken the time of all, and the event is next";
}

// Holds up the core until the gate opens.
void hold(Core& core, const std::shared_future<void>& gate) {
  std::promise<void> held;
  ASSERT_TRUE(core.look("10.0.0.9", [&held, gate](const auto&, const auto&) {
    held.set_value();
    gate.wait();
  }));
  held.get_future().wait();
}

TEST_F(CoreTest, AddressesTakeTurnsWithTheirPages) {
  std::promise<void> gate;
  hold(*core_, gate.get_future().share());
  std::string order;
  const auto ask = [&](const std::string& address, char name) {
    EXPECT_TRUE(core_->look(address, [&order, name](const auto&, const auto&) { order += name; }));
  };
  for (const char name : {'a', 'b', 'c'}) ask("10.0.0.1", name);
  ask("10.0.0.2", 'x');
  std::promise<void> last;
  EXPECT_TRUE(core_->look("10.0.0.1", [&](const auto&, const auto&) { last.set_value(); }));
  gate.set_value();
  last.get_future().wait();
  EXPECT_EQ(order, "axbc") << "nobody waits for all the pages of another one";
}

TEST_F(CoreTest, PagesOfThoseWhoHaveGoneAreNotMade) {
  std::promise<void> gate;
  hold(*core_, gate.get_future().share());
  std::atomic<bool> gone = false;
  std::size_t made = 0;
  for (std::size_t count = 0; count < 10 * looks_per_turn_max; ++count)
    EXPECT_TRUE(core_->look(
        "10.0.0.1", [&](const auto&, const auto&) { ++made; }, [&gone] { return gone.load(); }));
  std::promise<void> last;
  EXPECT_TRUE(core_->look("10.0.0.1", [&](const auto&, const auto&) { last.set_value(); }));
  gone = true;
  gate.set_value();
  last.get_future().wait();
  EXPECT_EQ(made, 0U);
}

TEST_F(CoreTest, OneAddressLeavesRoomForThePagesOfOthers) {
  std::promise<void> gate;
  hold(*core_, gate.get_future().share());
  const auto ask = [&](const std::string& address) {
    return core_->look(address, [](const auto&, const auto&) {});
  };
  std::size_t taken = 0;
  while (taken <= looks_waiting_max && ask("10.0.0.1")) ++taken;
  EXPECT_LT(taken, looks_waiting_max);
  EXPECT_TRUE(ask("10.0.0.2"));
  gate.set_value();
}

TEST(CoreDeathTest, SaysWhyItCannotGoOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    store::MemoryStore store;
    Core core(store, [](const driver::Delivery&) {});
    if (!core.start()) return;
    std::promise<void> never;
    if (!core.look("10.0.0.1", [](const auto&, const auto&) { throw std::bad_alloc(); })) return;
    never.get_future().wait();
  };
  EXPECT_DEATH(fail(), "its core cannot go on: std::bad_alloc");
}

TEST(CoreOnASlowDisk, APageWaitsForOneCommitAtMostAndShowsWhatWasAnswered) {
  constexpr int all = 1'000'000;
  SlowStore store(wire::node_key(""));
  Core core(store, [](driver::Delivery) {});
  ASSERT_TRUE(core.start().ok());
  std::promise<void> first_answered;
  core.happen(hello("a"), [&](const auto&) { first_answered.set_value(); });
  store.wait_until_begun(1);
  core.happen(hello("b"), nullptr);
  std::promise<std::size_t> seen;
  ASSERT_TRUE(core.look("10.0.0.1", [&](const cluster::State& state, const wire::StoreHealth&) {
    seen.set_value(state.nodes.size());
  }));
  store.let_through(1);
  first_answered.get_future().wait();
  auto nodes = seen.get_future();
  const bool in_time = nodes.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  store.let_through(all);
  EXPECT_TRUE(in_time) << "the second commit has not ended then";
  EXPECT_EQ(nodes.get(), 1U) << "what was answered, and nothing that is not stored";
}

}  // namespace
}  // namespace tutti::controller
