// Which thread runs what of a lane, and when.
#include "comm/lane.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::comm {
namespace {

struct Ran {
  std::uint64_t sequence = 0;
  std::thread::id thread;
};

// A lane that writes down what it runs.
struct Journal {
  std::mutex mutex;
  std::vector<Ran> entries;
  std::uint64_t last = 0;
  Lane lane{[this](Work::State& work) -> Result<> {
    const std::lock_guard lock(mutex);
    entries.push_back({work.sequence, std::this_thread::get_id()});
    return {};
  }};

  std::shared_ptr<Work::State> make() { return std::make_shared<Work::State>(); }
  std::function<void(Work::State&)> number() {
    return [this](Work::State& work) {
      work.sequence = ++last;
      work.enqueued = Clock::now();
    };
  }
};

TEST(LaneTest, RunNowRunsOnTheCallersThreadAfterWhatIsInLine) {
  Journal journal;
  for (int round = 0; round < 100; ++round) {
    journal.lane.push(journal.make(), journal.number());
    const auto work = journal.make();
    journal.lane.run_now(work, journal.number());
    EXPECT_TRUE(work->done);
  }
  EXPECT_TRUE(journal.lane.idle());
  const std::lock_guard lock(journal.mutex);
  ASSERT_EQ(journal.entries.size(), 200U);
  for (std::size_t i = 0; i < journal.entries.size(); ++i) EXPECT_EQ(journal.entries[i].sequence, i + 1);
}

TEST(LaneTest, ADeferredOperationIsBegunByItsWaiterAlone) {
  Journal journal;
  Journal busy;
  const auto first = journal.make();
  const auto second = journal.make();
  first->deferred = second->deferred = true;
  journal.lane.push(first, journal.number());
  journal.lane.push(second, journal.number());
  // Meanwhile a lane that does not defer comes to its work by itself, again and again.
  for (int round = 0; round < 3; ++round) {
    const auto work = busy.make();
    busy.lane.push(work, busy.number());
    while (!work->done) std::this_thread::yield();
  }
  EXPECT_FALSE(first->done);
  ASSERT_TRUE(journal.lane.wait(*second).ok());
  EXPECT_TRUE(first->done);
  ASSERT_EQ(journal.entries.size(), 2U);
  EXPECT_EQ(journal.entries[0].sequence, 1U);
  EXPECT_EQ(journal.entries[1].thread, std::this_thread::get_id());
}

}  // namespace
}  // namespace tutti::comm
