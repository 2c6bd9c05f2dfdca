// A store whose files are locked, moved, replaced or removed under a controller that uses it.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "control/store/sqlite/sqlite_store.hpp"

namespace tutti::store {
namespace {

struct PlaceTest : testing::Test {
  std::filesystem::path folder = testing::TempDir() + "tutti_store_place_" + std::to_string(getpid());
  std::string path = folder / "store.db";
  std::unique_ptr<SqliteStore> store;

  void SetUp() override {
    std::filesystem::create_directories(folder);
    auto opened = SqliteStore::open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    store = std::move(*opened);
    ASSERT_EQ(commit(0), "");
  }
  void TearDown() override {
    store.reset();
    std::filesystem::remove_all(folder);
  }
  // Why it is refused, "" if it is done.
  std::string commit(std::uint64_t revision) const {
    const auto done = store->commit(revision, std::vector<Write>{{"a", "1"}});
    return done.status == CommitResult::Status::done ? "" : done.why;
  }
  std::string tidy() const {
    const auto tidied = store->tidy();
    return tidied ? "" : tidied.error().message();
  }
  // What another controller, in a process of its own, is told.
  std::string other_controller() const {
    int report[2];
    if (pipe(report) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
      const auto opened = SqliteStore::open(path);
      const std::string text = opened ? "opened" : opened.error().message();
      (void)!write(report[1], text.data(), text.size());
      _exit(0);
    }
    close(report[1]);
    char buffer[512];
    const ssize_t length = read(report[0], buffer, sizeof buffer);
    close(report[0]);
    waitpid(child, nullptr, 0);
    return {buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
  }
};

TEST_F(PlaceTest, ARemovedLockFileLetsNobodyIn) {
  std::filesystem::remove(path + ".lock");
  EXPECT_EQ(other_controller(), "another controller uses this store, although its lock file is gone");
  EXPECT_EQ(commit(1), "") << "and the one that is there goes on";
}

TEST_F(PlaceTest, AStoreThatWasMovedAwayTakesNothingUntilItIsPutBack) {
  std::filesystem::rename(path, folder / "away");
  EXPECT_NE(commit(1).find(path + " was moved away or replaced"), std::string::npos) << commit(1);
  EXPECT_NE(tidy().find("was moved away or replaced"), std::string::npos);
  EXPECT_EQ(store->load()->revision, 1U) << "what is there can be read";
  std::filesystem::rename(folder / "away", path);
  EXPECT_EQ(tidy(), "");
  EXPECT_EQ(commit(1), "");
}

TEST_F(PlaceTest, AStoreThatWasReplacedTakesNothing) {
  std::filesystem::copy_file(path, folder / "copy");
  std::filesystem::rename(folder / "copy", path);
  EXPECT_NE(commit(1).find("was moved away or replaced"), std::string::npos);
}

TEST_F(PlaceTest, AStoreWhoseLogWasRemovedTakesNothing) {
  std::filesystem::remove(path + "-wal");
  EXPECT_NE(commit(1).find("store.db-wal was moved away or replaced"), std::string::npos) << commit(1);
}

TEST_F(PlaceTest, ALogThatOneLargeCommitMadeLongIsMadeShortAgain) {
  const auto log_bytes = [this] { return std::filesystem::file_size(path + "-wal"); };
  std::vector<Write> large;
  for (int object = 0; object < 40; ++object)
    large.push_back({"o" + std::to_string(object), std::string(1 << 20, 'x')});
  ASSERT_EQ(store->commit(1, large).status, CommitResult::Status::done);
  ASSERT_EQ(commit(2), "");
  EXPECT_GT(log_bytes(), std::uintmax_t{40} << 20) << "it keeps its size by itself";
  // Whoever reads meanwhile is not disturbed, and nobody waits for him.
  sqlite3* reader = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &reader), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM objects", nullptr, nullptr, nullptr),
            SQLITE_OK);
  ASSERT_EQ(commit(3), "");
  EXPECT_EQ(tidy(), "");
  EXPECT_GT(log_bytes(), std::uintmax_t{40} << 20);
  sqlite3_close(reader);
  EXPECT_EQ(tidy(), "");
  EXPECT_EQ(log_bytes(), 0U);
  EXPECT_EQ(commit(4), "");
  EXPECT_EQ(store->load()->objects.size(), 41U);
}

TEST_F(PlaceTest, WhatIsStoredIsReadOneAfterTheOtherUntilOneIsRefused) {
  ASSERT_EQ(store->commit(1, std::vector<Write>{{"c", "3"}, {"b", "2"}}).status, CommitResult::Status::done);
  std::string keys;
  const auto all = store->read([&](std::string_view key, std::string_view) -> Result<> {
    keys += key;
    return {};
  });
  EXPECT_EQ(all.value(), 2U);
  EXPECT_EQ(keys, "abc");
  const auto some = store->read([&](std::string_view key, std::string_view) -> Result<> {
    if (key == "b") return failed("no more");
    return {};
  });
  EXPECT_EQ(some.error().message(), "no more");
  EXPECT_EQ(commit(2), "") << "nothing is left open";
}

}  // namespace
}  // namespace tutti::store
