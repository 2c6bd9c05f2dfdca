#include "serve/server/workshop.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <future>
#include <latch>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/scarcity/scarcity.hpp"
#include "serve/program/within_memory.hpp"
#include "serve/server/lost.hpp"

namespace tutti::serve {
namespace {

// Tasks that wait until a test lets them go on.
class Gate {
 public:
  std::function<void()> task() {
    return [this] {
      begun_.count_down();
      open_.wait();
    };
  }
  void wait_until_begun() { begun_.wait(); }
  void open() { open_.count_down(); }

 private:
  std::latch begun_{1};
  std::latch open_{1};
};

TEST(Workshop, NobodyIsGivenAllOfTheThreads) {
  Gate first;
  Gate second;
  std::promise<void> done;
  Workshop workshop({.threads = 2});
  ASSERT_TRUE(workshop.give({"a", {}, first.task()}));
  ASSERT_TRUE(workshop.give({"a", {}, second.task()}));
  first.wait_until_begun();
  // It would wait for ever behind two of another.
  ASSERT_TRUE(workshop.give({"b", {}, [&] { done.set_value(); }}));
  done.get_future().wait();
  first.open();
  second.wait_until_begun();
  second.open();
}

TEST(Workshop, ThoseWhoWaitTakeTurns) {
  Gate a;
  Gate b;
  std::string order;
  std::promise<void> done;
  Workshop workshop({.threads = 2});
  ASSERT_TRUE(workshop.give({"a", {}, a.task()}));
  ASSERT_TRUE(workshop.give({"b", {}, b.task()}));
  a.wait_until_begun();
  b.wait_until_begun();
  const auto note = [&](char who, std::size_t all) {
    return [&, who, all] {
      order += who;
      if (order.size() == all) done.set_value();
    };
  };
  for (int nth = 0; nth < 3; ++nth) ASSERT_TRUE(workshop.give({"c", {}, note('c', 5)}));
  ASSERT_TRUE(workshop.give({"d", {}, note('d', 5)}));
  ASSERT_TRUE(workshop.give({"e", {}, note('e', 5)}));
  a.open();  // one thread does them all
  done.get_future().wait();
  EXPECT_EQ(order, "cdecc");
  b.open();
}

TEST(Workshop, WhatWaitsIsBoundedForOneAndForAll) {
  Gate a;
  Gate b;
  Workshop workshop({.threads = 2, .waiting_max = 4});
  ASSERT_TRUE(workshop.give({"a", {}, a.task()}));
  ASSERT_TRUE(workshop.give({"b", {}, b.task()}));
  a.wait_until_begun();
  b.wait_until_begun();
  for (int nth = 0; nth < 3; ++nth) EXPECT_TRUE(workshop.give({"c", {}, [] {}}));
  EXPECT_FALSE(workshop.give({"c", {}, [] {}}));
  EXPECT_TRUE(workshop.give({"d", {}, [] {}}));
  EXPECT_FALSE(workshop.give({"e", {}, [] {}}));
  a.open();
  b.open();
}

TEST(Workshop, WhatIsAbandonedDoesNotBeginAndMakesRoom) {
  Gate a;
  Gate b;
  std::stop_source left;
  std::promise<void> done;
  const auto held = std::make_shared<int>();
  bool has_begun = false;
  Workshop workshop({.threads = 2, .waiting_max = 2});
  ASSERT_TRUE(workshop.give({"a", {}, a.task()}));
  ASSERT_TRUE(workshop.give({"b", {}, b.task()}));
  a.wait_until_begun();
  b.wait_until_begun();
  for (int nth = 0; nth < 2; ++nth)
    ASSERT_TRUE(workshop.give({"c", left.get_token(), [&has_begun, held] { has_begun = true; }}));
  EXPECT_FALSE(workshop.give({"d", {}, [] {}}));
  left.request_stop();
  workshop.drop_abandoned();
  EXPECT_EQ(held.use_count(), 1) << "what it held is let go";
  // Abandoned already when it comes: it is passed over.
  ASSERT_TRUE(workshop.give({"c", left.get_token(), [&has_begun] { has_begun = true; }}));
  ASSERT_TRUE(workshop.give({"d", {}, [&] { done.set_value(); }}));
  a.open();
  done.get_future().wait();
  EXPECT_FALSE(has_begun);
  b.open();
}

// Whichever of the things that it needs is the one that there is no memory for.
TEST(Workshop, AnErrandForWhichThereIsNoMemoryTakesNoPlace) {
  Gate a;
  Gate b;
  std::latch done{2};
  Workshop workshop({.threads = 2, .waiting_max = 2});
  ASSERT_TRUE(workshop.give({"a", {}, a.task()}));
  ASSERT_TRUE(workshop.give({"b", {}, b.task()}));
  a.wait_until_begun();
  b.wait_until_begun();
  std::size_t refused = 0;
  for (bool is_given = false; !is_given;) {
    Errand errand{std::string(100, 'c'), {}, [&] { done.count_down(); }};
    const Scarcity scarcity(8 * refused);
    try {
      is_given = workshop.give(std::move(errand));
      if (!is_given) break;
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1U);
  EXPECT_TRUE(workshop.give({"d", {}, [&] { done.count_down(); }}));
  EXPECT_FALSE(workshop.give({"e", {}, [] {}}));
  a.open();
  b.open();
  done.wait();
}

TEST(Workshop, AnErrandThatThrowsForWantOfMemoryIsBegunAgain) {
  std::latch done{2};
  Workshop workshop({.threads = 2, .waiting_max = 2});
  std::atomic<int> times = 0;
  ASSERT_TRUE(workshop.give({"a", {}, [&] {
                               if (++times < 3) throw std::bad_alloc();
                               done.count_down();
                             }}));
  ASSERT_TRUE(workshop.give({"a", {}, [&] { done.count_down(); }}));
  done.wait();
  EXPECT_EQ(times, 3);
}

TEST(Workshop, AnErrandForWhichThereIsNoMemoryForLongIsLostAndWhoWaitsIsTold) {
  std::promise<void> told;
  std::promise<void> next;
  std::atomic<int> times = 0;
  Workshop workshop({.threads = 2, .waiting_max = 2, .patience = 20ms});
  ASSERT_TRUE(workshop.give({.owner = "a",
                             .abandoned = {},
                             .task =
                                 [&] {
                                   ++times;
                                   throw std::bad_alloc();
                                 },
                             .lost = [&] { told.set_value(); }}));
  ASSERT_TRUE(workshop.give({"a", {}, [&] { next.set_value(); }}));
  told.get_future().wait();
  next.get_future().wait();
  EXPECT_GT(times, 0);
}

TEST(Workshop, WhoIsLostIsToldThoughThereIsNoMemoryAtAll) {
  Lost lost;
  std::promise<void> begun;
  std::promise<void> taken;
  Workshop workshop({.threads = 2, .waiting_max = 2, .patience = 20ms});
  const auto is_taken = taken.get_future().share();
  ASSERT_TRUE(workshop.give({.owner = "a",
                             .abandoned = {},
                             .task =
                                 [&, told = false]() mutable {
                                   if (!std::exchange(told, true)) begun.set_value();
                                   is_taken.wait();
                                   static_cast<void>(within_memory_of_errand(
                                       [] { return Result<std::string>(std::string(100, 'x')); }));
                                   throw std::logic_error("there was memory");
                                 },
                             .lost = lost.teller(7)}));
  begun.get_future().wait();
  pollfd looked{.fd = lost.descriptor(), .events = POLLIN, .revents = 0};
  {
    const Scarcity scarcity(0);
    taken.set_value();
    EXPECT_EQ(::poll(&looked, 1, -1), 1);
  }
  EXPECT_EQ(lost.take(), std::list<std::uint64_t>{7});
}

TEST(Workshop, EndsThoughAnErrandFindsNoMemory) {
  std::promise<void> begun;
  std::atomic<int> times = 0;
  Workshop workshop({.threads = 2, .waiting_max = 2});
  ASSERT_TRUE(workshop.give({"a", {}, [&] {
                               if (++times == 1) begun.set_value();
                               throw std::bad_alloc();
                             }}));
  begun.get_future().wait();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// While it lives there is room for some stacks of threads, and no more.
class LittleRoom {
 public:
  explicit LittleRoom(std::size_t bytes) {
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit little{pages * 4096 + bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  }
  LittleRoom(const LittleRoom&) = delete;
  LittleRoom& operator=(const LittleRoom&) = delete;
  ~LittleRoom() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }

 private:
  rlimit before_{};
};

// Whether none of them can be started or one too few.
TEST(Workshop, WhereNoThreadCanBeStartedThatIsSaid) {
  constexpr std::size_t threads = 8;
  int refused = 0;
  for (std::size_t bytes = std::size_t{1} << 20; bytes <= std::size_t{32} << 20;
       bytes += std::size_t{4} << 20) {
    const auto made = [&] {
      const LittleRoom room(bytes);
      return within_threads([&]() -> Result<std::unique_ptr<Workshop>> {
        return std::make_unique<Workshop>(Workshop::Bounds{.threads = threads});
      });
    }();
    if (made) continue;
    ++refused;
    EXPECT_NE(made.error().text().find("no more threads"), std::string::npos) << made.error().text();
  }
  EXPECT_GT(refused, 1);
}

#endif

}  // namespace
}  // namespace tutti::serve
