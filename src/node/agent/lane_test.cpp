#include "node/agent/lane.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "node/agent/no_threads_test.hpp"

namespace tutti::agent {
namespace {

// Opening a named pipe that nobody writes to waits as a shared disk that does not answer does.
class LaneTest : public testing::Test {
 protected:
  LaneTest() {
    std::string path = testing::TempDir() + "tutti-lane-XXXXXX";
    folder_ = mkdtemp(path.data());
    pipe_ = folder_ + "/pipe";
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
  }
  ~LaneTest() override {
    // Lets go whoever waits.
    const int other_end = open(pipe_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (freed_.valid()) freed_.wait_for(20s);
    close(other_end);
    unlink(pipe_.c_str());
    rmdir(folder_.c_str());
  }

  Lane::Work stuck() {
    auto freed = std::make_shared<std::promise<void>>();
    freed_ = freed->get_future();
    return [path = pipe_, freed, started = started_] {
      started->set_value();
      close(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      freed->set_value();
      return Lane::Then();
    };
  }

  std::string folder_;
  std::string pipe_;
  std::shared_ptr<std::promise<void>> started_ = std::make_shared<std::promise<void>>();
  std::future<void> freed_;
};

TEST_F(LaneTest, WhatIsStuckHoldsUpNeitherTheLoopNorTheOtherThreads) {
  net::Loop loop;
  Lane lane(loop, 2);
  lane.run(stuck());
  int awaited = 2;
  const auto one_more = [&] {
    if (--awaited == 0) loop.stop();
  };
  const auto heartbeat = loop.after(1ms, one_more);
  lane.run([&]() -> Lane::Then { return one_more; });
  loop.run();
  EXPECT_EQ(lane.under_way(), 1U);
}

TEST_F(LaneTest, ALaneEndsWithoutWhatIsStuck) {
  net::Loop loop;
  {
    Lane lane(loop, 1);
    lane.run(stuck());
    started_->get_future().wait();
    lane.run([]() -> Lane::Then {
      ADD_FAILURE() << "it waited behind what is stuck, and the lane has gone";
      return {};
    });
  }
  EXPECT_NE(freed_.wait_for(0s), std::future_status::ready);
}

TEST_F(LaneTest, WorkThatThrowsIsToldToWhoeverWaitsForItAndEndsNobody) {
  net::Loop loop;
  Lane lane(loop, 1);
  std::vector<std::string> told;
  const auto tell = [&](const std::string& why) {
    told.push_back(why);
    if (told.size() == 2) loop.stop();
  };
  const auto throwing = [](const char* why) {
    return [why]() -> Lane::Then { throw std::runtime_error(why); };
  };
  lane.run("rank 7.0.0", throwing("the disk is gone"), tell);
  lane.run("rank 7.0.0", throwing("nobody waits for this"));
  lane.run("rank 7.0.0", [&]() -> Lane::Then { return [&] { tell("the next"); }; });
  loop.run();
  EXPECT_EQ(told, (std::vector<std::string>{"the disk is gone", "the next"}));
}

TEST_F(LaneTest, SaysForHowLongItIsAtOneWorkOfAnOwner) {
  net::Loop loop;
  Lane lane(loop, LaneLimits{.threads_max = 1});
  EXPECT_EQ(lane.at_work("job 7"), 0s);
  lane.run("job 7", stuck());
  lane.run("job 7", [] { return Lane::Then(); });
  lane.run("job 8", [] { return Lane::Then(); });
  started_->get_future().wait();
  EXPECT_GT(lane.at_work("job 7"), 0s);
  EXPECT_EQ(lane.at_work("job 8"), 0s) << "it waits";
}

// ---- what is stuck gives its place away

constexpr LaneLimits impatient{.threads_max = 1, .patience = 20ms, .stuck_max = 2};

// Many that wait in one place until the test lets them go.
class Barrier {
 public:
  Lane::Work stuck() {
    return [state = state_]() -> Lane::Then {
      std::unique_lock lock(state->mutex);
      ++state->came;
      state->changed.notify_all();
      state->changed.wait(lock, [&] { return state->open; });
      return {};
    };
  }
  int came() const {
    const std::lock_guard lock(state_->mutex);
    return state_->came;
  }
  void open() {
    const std::lock_guard lock(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }
  ~Barrier() { open(); }
  Barrier() = default;
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int came = 0;
    bool open = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(ImpatientLane, WhatIsStuckGivesItsPlaceToAFreshThread) {
  net::Loop loop;
  Barrier gate;
  Lane lane(loop, impatient);
  lane.run("rank 1", gate.stuck());
  lane.run("rank 2", gate.stuck());
  lane.run("rank 3", [&]() -> Lane::Then { return [&] { loop.stop(); }; });
  loop.run();
  EXPECT_TRUE(lane.busy("rank 1"));
  EXPECT_TRUE(lane.busy("rank 2"));
  EXPECT_FALSE(lane.busy("rank 3"));
}

TEST(ImpatientLane, AnOwnerHasOnePlaceAndKeepsItsOrder) {
  net::Loop loop;
  Barrier gate;
  std::vector<int> done;
  Lane lane(loop, impatient);
  lane.run("rank 1", gate.stuck());
  for (int number = 1; number <= 10; ++number) {
    lane.run("rank 1", [&done, &loop, number]() -> Lane::Then {
      return [&done, &loop, number] {
        done.push_back(number);
        if (number == 10) loop.stop();
      };
    });
  }
  lane.run("rank 2", [&]() -> Lane::Then {
    return [&] {
      EXPECT_TRUE(done.empty());
      EXPECT_FALSE(lane.full()) << "it has one place, however much it wants";
      gate.open();
    };
  });
  loop.run();
  EXPECT_EQ(done, (std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(ImpatientLane, BearsSoMuchThatIsStuckAndSaysWhenItIsFull) {
  net::Loop loop;
  Barrier gate;
  Lane lane(loop, impatient);
  for (int rank = 1; rank <= 5; ++rank) lane.run("rank " + std::to_string(rank), gate.stuck());
  bool was_full = false;
  const auto look = loop.every(5ms, [&] {
    if (!was_full && lane.full() && gate.came() == 3) {
      was_full = true;
      // Two that are stuck beside the one place of the lane, and no thread for more.
      EXPECT_EQ(lane.under_way(), 5U);
      gate.open();
    }
    if (was_full && lane.under_way() == 0) loop.stop();
  });
  loop.run();
  EXPECT_EQ(gate.came(), 5);
  EXPECT_FALSE(lane.full());
}

TEST_F(LaneTest, WorkWaitsWhereNoThreadCanBeStartedAndIsDoneLater) {
  net::Loop loop;
  Lane lane(loop, 1);
  auto none = std::make_unique<NoThreads>();
  ASSERT_THROW(std::thread([] {}).join(), std::system_error);
  lane.run([&]() -> Lane::Then { return [&] { loop.stop(); }; });
  EXPECT_EQ(lane.under_way(), 1U);
  // Nobody asks for more work: the lane tries again by itself.
  const auto better = loop.after(1ms, [&] { none.reset(); });
  loop.run();
  EXPECT_EQ(lane.under_way(), 0U);
}

}  // namespace
}  // namespace tutti::agent
