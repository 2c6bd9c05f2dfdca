#include <gtest/gtest.h>

#include "control/driver/turns.hpp"
#include "control/store/memory/memory_store.hpp"

namespace tutti::driver {
namespace {

const Turns::Clock clock_of_test = [] { return Instant(1000s); };

std::vector<cluster::JobId> submitted(Turns& turns) {
  cluster::JobSpec spec;
  spec.name = "job";
  spec.command = {"true"};
  std::vector<cluster::JobId> ids;
  std::vector<Item> items;
  items.push_back({cluster::Submit{{spec}}, [](const auto&) {}, nullptr});
  for (auto& answer : turns.turn(std::move(items), false).answers) {
    if (answer.result) ids = *answer.result;
  }
  return ids;
}

TEST(ClusterIdentity, IsStoredOnceAndKept) {
  store::MemoryStore store;
  Turns first(store, clock_of_test, "one");
  ASSERT_TRUE(first.load().ok());
  EXPECT_EQ(first.state().cluster_id, "one");
  Turns second(store, clock_of_test, "two");
  ASSERT_TRUE(second.load().ok());
  EXPECT_EQ(second.state().cluster_id, "one");
}

TEST(ClusterIdentity, AStoreThatCannotTakeItIsNoCluster) {
  store::MemoryStore store;
  store.fail_next(store::CommitResult::Status::unknown, false);
  Turns turns(store, clock_of_test, "one");
  EXPECT_FALSE(turns.load().ok());
}

// Also if the jobs are removed from the store one day.
TEST(ClusterIdentity, IdsOfJobsThatAreGoneDoNotComeBack) {
  store::MemoryStore store;
  {
    Turns turns(store, clock_of_test, "one");
    ASSERT_TRUE(turns.load().ok());
    ASSERT_EQ(submitted(turns), std::vector{cluster::JobId(1)});
    ASSERT_EQ(submitted(turns), std::vector{cluster::JobId(2)});
  }
  const auto contents = store.load();
  std::vector<store::Write> removal;
  for (const auto& [key, value] : contents->objects) {
    if (key.starts_with("job/")) removal.push_back({key, std::nullopt});
  }
  ASSERT_EQ(removal.size(), 2U);
  ASSERT_EQ(store.commit(contents->revision, removal).status, store::CommitResult::Status::done);
  Turns turns(store, clock_of_test, "one");
  ASSERT_TRUE(turns.load().ok());
  EXPECT_EQ(submitted(turns), std::vector{cluster::JobId(3)});
}

}  // namespace
}  // namespace tutti::driver
