#include "control/store/memory/memory_store.hpp"

#include <gtest/gtest.h>

#include "control/store/memory/conformance.hpp"

namespace tutti::store {
namespace {

using Status = CommitResult::Status;

const std::vector<Write> one_write{{"a", "1"}};

TEST(MemoryStore, Conforms) {
  MemoryStore store;
  expect_conforms(store);
}

TEST(MemoryStore, WritesAndRemoves) {
  MemoryStore store;
  EXPECT_EQ(store.commit(0, one_write).revision, 1U);
  EXPECT_EQ(store.load()->objects.at("a"), "1");
  EXPECT_EQ(store.commit(1, std::vector<Write>{{"a", std::nullopt}, {"absent", std::nullopt}}).revision, 2U);
  EXPECT_TRUE(store.load()->objects.empty());
}

TEST(MemoryStore, AnUnknownCommitHasLandedOrNot) {
  for (const bool landed : {false, true}) {
    MemoryStore store;
    store.fail_next(Status::unknown, landed);
    const auto result = store.commit(0, one_write);
    EXPECT_EQ(result.status, Status::unknown);
    EXPECT_FALSE(result.why.empty());
    const auto contents = store.load();
    EXPECT_EQ(contents->revision, landed ? 1U : 0U);
    EXPECT_EQ(contents->objects.contains("a"), landed);
    EXPECT_EQ(store.commit(contents->revision, one_write).status, Status::done);
  }
}

TEST(MemoryStore, AnInjectedConflictMovesTheRevisionOn) {
  MemoryStore store;
  store.fail_next(Status::conflict, false);
  EXPECT_EQ(store.commit(0, one_write).status, Status::conflict);
  EXPECT_TRUE(store.load()->objects.empty());
  EXPECT_EQ(store.commit(0, one_write).status, Status::conflict);
  EXPECT_EQ(store.commit(1, one_write).status, Status::done);
}

TEST(MemoryStore, AFaultWaitsForACommitThatWouldSucceed) {
  MemoryStore store;
  store.fail_next(Status::unknown, false);
  EXPECT_EQ(store.commit(5, one_write).status, Status::conflict);
  EXPECT_EQ(store.commit(0, one_write).status, Status::unknown);
  EXPECT_EQ(store.commit(0, one_write).status, Status::done);
}

}  // namespace
}  // namespace tutti::store
