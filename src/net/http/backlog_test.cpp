#include "net/http/backlog.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"

namespace tutti::net {
namespace {

constexpr std::size_t kib = 1 << 10;

using Text = std::shared_ptr<const std::string>;

Text text(std::size_t bytes) { return std::make_shared<const std::string>(bytes, 'x'); }

// Keeps what it is given until it is let go.
class Waiting final : public Backlog::Reader {
 public:
  explicit Waiting(Backlog& backlog, bool spared = false) : Reader(spared), backlog_(backlog) {}
  void give(const Text& one) {
    texts_.push_back(one);
    backlog_.hold(*this, *one);
  }
  void take_all() {
    for (const Text& one : std::exchange(texts_, {})) backlog_.release(*this, *one);
  }
  std::size_t let_go() override {
    gone = true;
    if (slow_to_leave) return waiting_bytes();
    take_all();
    return 0;
  }
  bool gone = false;
  bool slow_to_leave = false;  // take_all() is called later

 private:
  Backlog& backlog_;
  std::vector<Text> texts_;
};

TEST(Backlog, WhatManyWaitForCountsOnce) {
  Backlog backlog(100 * kib);
  std::vector<std::unique_ptr<Waiting>> readers;
  for (int at = 0; at < 20; ++at) readers.push_back(std::make_unique<Waiting>(backlog));
  const Text shared = text(50 * kib);
  for (auto& reader : readers) reader->give(shared);
  EXPECT_LT(backlog.bytes(), 60 * kib);
  for (auto& reader : readers) {
    EXPECT_FALSE(reader->gone);
    reader->take_all();
  }
  EXPECT_EQ(backlog.bytes(), 0U);
}

TEST(Backlog, TheSlowestAreLetGoFirstAndNoMoreOfThemThanIsNeeded) {
  Backlog backlog(100 * kib);
  Waiting slower(backlog);
  Waiting slow(backlog);
  Waiting quick(backlog);
  for (int at = 0; at < 5; ++at) slower.give(text(10 * kib));
  for (int at = 0; at < 3; ++at) slow.give(text(10 * kib));
  EXPECT_FALSE(slower.gone);
  for (int at = 0; at < 3; ++at) quick.give(text(8 * kib));
  EXPECT_TRUE(slower.gone);
  EXPECT_FALSE(slow.gone);
  EXPECT_FALSE(quick.gone);
  EXPECT_LT(backlog.bytes(), 75 * kib);
}

TEST(Backlog, WhoHasMuchWaitingOnlyNowIsNotSlow) {
  Backlog backlog(100 * kib);
  Waiting stuck(backlog);
  for (int at = 0; at < 40; ++at) stuck.give(text(kib));
  Waiting page(backlog);
  page.give(text(50 * kib));
  Waiting next(backlog);
  next.give(text(10 * kib));
  EXPECT_TRUE(stuck.gone);
  EXPECT_FALSE(page.gone);
}

TEST(Backlog, WhoTakesALargeTextBitByBitIsNotSlow) {
  Backlog backlog(100 * kib);
  Waiting reads(backlog);
  Waiting stuck(backlog);
  reads.give(text(40 * kib));
  stuck.give(text(35 * kib));
  Waiting quick(backlog);
  for (int at = 0; at < 20; ++at) {
    quick.give(text(kib));
    quick.take_all();
    backlog.took(reads);
  }
  quick.give(text(30 * kib));
  EXPECT_TRUE(stuck.gone);
  EXPECT_FALSE(reads.gone);
}

TEST(Backlog, ManySmallTextsAreNotForNothing) {
  Backlog backlog(100 * kib);
  Waiting reader(backlog);
  const Text tiny = text(1);
  for (int at = 0; at < 100'000 && !reader.gone; ++at) reader.give(tiny);
  EXPECT_TRUE(reader.gone);
}

TEST(Backlog, AgentsAreSparedAsLongAsThereIsSomebodyElse) {
  Backlog backlog(100 * kib);
  Waiting agent(backlog, true);
  Waiting reader(backlog);
  agent.give(text(70 * kib));
  reader.give(text(20 * kib));
  reader.give(text(20 * kib));
  EXPECT_TRUE(reader.gone);
  EXPECT_FALSE(agent.gone);
  agent.give(text(50 * kib));
  EXPECT_TRUE(agent.gone);
}

TEST(Backlog, WhoIsAboutToLeaveCountsAsGone) {
  Backlog backlog(100 * kib);
  Waiting answer(backlog);
  answer.slow_to_leave = true;
  Waiting reader(backlog);
  answer.give(text(60 * kib));
  reader.give(text(50 * kib));
  EXPECT_TRUE(answer.gone);
  EXPECT_FALSE(reader.gone);
  reader.give(text(20 * kib));
  EXPECT_FALSE(reader.gone);
  answer.take_all();
  EXPECT_FALSE(reader.gone);
  reader.give(text(40 * kib));
  EXPECT_TRUE(reader.gone);
  EXPECT_EQ(backlog.bytes(), 0U);
}

TEST(Backlog, MuchThatIsGoneIsGivenBackOnce) {
  int given_back = 0;
  Backlog backlog(std::size_t{1} << 30, [&] { ++given_back; });
  Waiting reader(backlog);
  for (int at = 0; at < 100; ++at) reader.give(text(kib * kib));
  EXPECT_EQ(given_back, 0);
  reader.take_all();
  EXPECT_EQ(given_back, 1);
  reader.give(text(kib * kib));
  reader.take_all();
  EXPECT_EQ(given_back, 1) << "a little is soon used again";
}

// Whatever of it there is no memory for.
TEST(Backlog, WhatCannotBeCountedDoesNotWait) {
  Backlog backlog(100 * kib);
  int not_counted = 0;
  for (std::size_t given_bytes = 0; given_bytes < 128; given_bytes += 8) {
    Backlog fresh(100 * kib);
    for (Backlog* one : {&backlog, &fresh}) {
      Waiting reader(*one);
      const Text waits = text(kib);
      bool is_counted = true;
      {
        const Scarcity scarcity(given_bytes);
        try {
          one->hold(reader, *waits);
        } catch (const std::bad_alloc&) {
          is_counted = false;
        }
      }
      not_counted += is_counted ? 0 : 1;
      EXPECT_EQ(reader.waiting_bytes() > 0, is_counted);
      if (is_counted) one->release(reader, *waits);
      EXPECT_EQ(one->bytes(), 0U);
    }
  }
  EXPECT_GT(not_counted, 0);
}

}  // namespace
}  // namespace tutti::net
