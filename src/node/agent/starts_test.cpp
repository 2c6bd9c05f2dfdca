#include "node/agent/starts.hpp"

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

using keeper::RankKey;

// What a disk that stands still does to whoever waits for it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    arrived_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_somebody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  bool arrived_ = false;
};

// The loop has a thread of its own, as it has in an agent; the test asks it.
class StartsTest : public testing::Test {
 protected:
  void make(const StartLimits& limits) {
    starts_.emplace(loop_, limits, [this](const RankKey& key, const auto& shim) {
      done_.emplace_back(key.rank, shim ? "" : shim.error().text());
    });
    thread_ = std::thread([this] { loop_.run(); });
  }
  template <class Question>
  auto on_loop(Question question) {
    std::promise<decltype(question())> told;
    loop_.post([&] { told.set_value(question()); });
    return told.get_future().get();
  }
  template <class Question>
  void wait_until(Question reached) {
    while (!on_loop(reached)) std::this_thread::yield();
  }

  void TearDown() override {
    gate_->open();
    // So that no thread is left in this test's memory.
    wait_until([this] { return !starts_->under_way(); });
    on_loop([this] {
      starts_.reset();
      return true;
    });
    loop_.stop();
    thread_.join();
  }

  void begin(const RankKey& key, const Starts::Work& work) {
    on_loop([&] {
      starts_->begin(key, work);
      return true;
    });
  }
  bool stop(const RankKey& key) {
    return on_loop([&] { return starts_->stop(key); });
  }
  bool under_way() {
    return on_loop([&] { return starts_->under_way(); });
  }
  std::string illness() {
    return on_loop([&] { return starts_->illness(); });
  }
  using Ends = std::vector<std::pair<std::int32_t, std::string>>;
  Ends done() {
    return on_loop([&] { return done_; });
  }
  Ends done(std::size_t count) {
    wait_until([&] { return done_.size() >= count; });
    return done();
  }

  static RankKey rank(std::int32_t number) { return {cluster::JobId(7), 0, number}; }

  // Stuck at the disk, before the process is made.
  Starts::Work stuck_before() {
    return [gate = gate_, ran = ran_](const MayRun& may_run) -> Result<StartedShim> {
      gate->pass();
      if (!may_run()) return failed("it was not wanted");
      ++*ran;
      return StartedShim();
    };
  }
  // Stuck where it cannot be known whether there is a process.
  Starts::Work stuck_after() {
    return [gate = gate_, ran = ran_](const MayRun& may_run) -> Result<StartedShim> {
      if (!may_run()) return failed("it was not wanted");
      gate->pass();
      ++*ran;
      return StartedShim();
    };
  }
  Starts::Work quick() {
    return [ran = ran_](const MayRun& may_run) -> Result<StartedShim> {
      if (!may_run()) return failed("it was not wanted");
      ++*ran;
      return StartedShim();
    };
  }

  net::Loop loop_;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::shared_ptr<std::atomic<int>> ran_ = std::make_shared<std::atomic<int>>(0);
  Ends done_;
  std::optional<Starts> starts_;
  std::thread thread_;
};

TEST_F(StartsTest, OneThatIsStuckHoldsUpNeitherTheLoopNorTheOthers) {
  make({.threads_max = 2});
  begin(rank(0), stuck_before());
  gate_->wait_for_somebody();
  for (int other = 1; other < 100; ++other) begin(rank(other), quick());
  done(99);
  EXPECT_TRUE(under_way());
  gate_->open();
  done(100);
  EXPECT_EQ(done().back(), (Ends::value_type{0, ""}));
  EXPECT_FALSE(under_way());
}

TEST_F(StartsTest, OneThatThrowsHasFailedAndTheOthersStart) {
  make({.threads_max = 1});
  begin(rank(0), [](const MayRun&) -> Result<StartedShim> { throw std::bad_alloc(); });
  begin(rank(1), quick());
  EXPECT_EQ(done(2), (Ends{{0, "std::bad_alloc"}, {1, ""}}));
}

TEST_F(StartsTest, WhatHasNotMadeAProcessIsStoppedForSure) {
  make({.threads_max = 1});
  begin(rank(0), stuck_before());
  gate_->wait_for_somebody();
  begin(rank(1), quick());
  EXPECT_TRUE(stop(rank(0)));
  EXPECT_FALSE(stop(rank(0))) << "it is known already";
  EXPECT_TRUE(stop(rank(1))) << "no thread has begun with it";
  EXPECT_FALSE(stop(rank(2)));
  EXPECT_TRUE(under_way()) << "it may still write files";
  gate_->open();
  wait_until([&] { return !starts_->under_way(); });
  EXPECT_EQ(*ran_, 0);
  EXPECT_TRUE(done().empty());
}

TEST_F(StartsTest, WhatMayHaveAProcessIsNotStopped) {
  make({.threads_max = 1});
  begin(rank(0), stuck_after());
  gate_->wait_for_somebody();
  EXPECT_FALSE(stop(rank(0)));
  gate_->open();
  done(1);
  EXPECT_EQ(done(), (Ends{{0, ""}}));
}

TEST_F(StartsTest, WhatTakesTooLongIsGivenUpAndTheNodeIsIll) {
  make({.threads_max = 1, .slow = 1ms, .time_max = 5ms, .look_every = 1ms});
  EXPECT_EQ(illness(), "");
  begin(rank(0), stuck_before());
  gate_->wait_for_somebody();
  begin(rank(1), quick());
  done(2);
  EXPECT_EQ(done()[0], (Ends::value_type{0, "it took longer than 5ms to start it"}));
  EXPECT_EQ(done()[1].first, 1) << "whoever waits behind it does not wait for ever";
  EXPECT_EQ(illness(), "it takes longer than 1ms to start a rank") << "until it comes back";
  begin(rank(0), quick());
  done(3);
  EXPECT_EQ(done()[2].second, "an earlier start of it does not come back");
  gate_->open();
  wait_until([&] { return !starts_->under_way(); });
  EXPECT_EQ(illness(), "");
  EXPECT_EQ(*ran_, 0);
  EXPECT_EQ(done().size(), 3U);
}

TEST_F(StartsTest, WhatMayHaveAProcessIsWaitedForHoweverLongItTakes) {
  make({.threads_max = 1, .slow = 1ms, .time_max = 2ms, .look_every = 1ms});
  // The loop does not look before the process is made: until then it would be given up.
  on_loop([&] {
    starts_->begin(rank(0), stuck_after());
    gate_->wait_for_somebody();
    return true;
  });
  wait_until([&] { return !starts_->illness().empty(); });
  EXPECT_TRUE(done().empty());
  gate_->open();
  done(1);
  EXPECT_EQ(done(), (Ends{{0, ""}}));
}

}  // namespace
}  // namespace tutti::agent
