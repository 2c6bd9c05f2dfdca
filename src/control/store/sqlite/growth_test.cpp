// A store that is written to for ever: its size, its load time, and what a full disk leaves possible.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "control/store/sqlite/sqlite_store.hpp"

namespace tutti::store {
namespace {

using Done = CommitResult::Status;

struct GrowthTest : testing::Test {
  std::filesystem::path folder = testing::TempDir() + "tutti_store_growth_" + std::to_string(getpid());
  std::uint64_t revision = 0;

  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override {
    ::umount2(folder.c_str(), MNT_DETACH);
    std::filesystem::remove_all(folder);
  }

  std::string path() const { return (folder / "store.db").string(); }
  std::unique_ptr<SqliteStore> open() {
    auto store = SqliteStore::open(path());
    EXPECT_TRUE(store.ok()) << (store ? "" : store.error().text());
    if (store) revision = (*store)->load()->revision;
    return store ? std::move(*store) : nullptr;
  }
  CommitResult commit(SqliteStore& store, const std::vector<Write>& writes) {
    auto done = store.commit(revision, writes);
    if (done.status == Done::done) revision = done.revision;
    return done;
  }
  std::uint64_t bytes() const { return std::filesystem::file_size(path()); }
};

std::string key_of(int number) {
  char text[32];
  std::snprintf(text, sizeof text, "job/%020d", number);
  return text;
}

TEST_F(GrowthTest, AStoreThatForgetsAsMuchAsItLearnsStaysAsLargeAsItIs) {
  constexpr int kept = 20'000;
  constexpr int batch = 500;
  const std::string value(600, 'j');
  auto store = open();
  std::uint64_t bytes_full = 0;
  for (int first = 0; first < 4 * kept; first += batch) {
    std::vector<Write> writes;
    for (int at = first; at < first + batch; ++at) {
      writes.push_back({key_of(at), value});
      if (at >= kept) writes.push_back({key_of(at - kept), std::nullopt});
    }
    ASSERT_EQ(commit(*store, writes).status, Done::done);
    (void)store->tidy();
    if (first + batch == kept) bytes_full = bytes();
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto contents = store->load();
  const double load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_EQ(contents->objects.size(), static_cast<std::size_t>(kept));
  EXPECT_LE(bytes(), bytes_full + bytes_full / 2);
  RecordProperty("bytes", std::to_string(bytes()));
  RecordProperty("load_ms", std::to_string(load_ms));
}

TEST_F(GrowthTest, WhatIsForgottenIsGivenBackToTheDiskBitByBit) {
  const std::string value(4000, 'j');
  auto store = open();
  std::vector<Write> writes;
  for (int at = 0; at < 10'000; ++at) writes.push_back({key_of(at), value});
  ASSERT_EQ(commit(*store, writes).status, Done::done);
  for (Write& write : writes) write.value.reset();
  ASSERT_EQ(commit(*store, writes).status, Done::done);
  for (int round = 0; round < 100; ++round) (void)store->tidy();
  store.reset();
  EXPECT_LT(bytes(), std::uint64_t{16} << 20);
  EXPECT_NE(open(), nullptr);
}

// One that an older tutti made.
TEST_F(GrowthTest, AnOldStoreLearnsToShrink) {
  ASSERT_NE(open(), nullptr);
  sqlite3* old = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &old), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(old, "PRAGMA auto_vacuum = NONE; VACUUM", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(old);
  auto store = open();
  ASSERT_NE(store, nullptr);
  std::vector<Write> writes;
  for (int at = 0; at < 10'000; ++at) writes.push_back({key_of(at), std::string(4000, 'j')});
  ASSERT_EQ(commit(*store, writes).status, Done::done);
  for (Write& write : writes) write.value.reset();
  ASSERT_EQ(commit(*store, writes).status, Done::done);
  for (int round = 0; round < 100; ++round) (void)store->tidy();
  store.reset();
  EXPECT_LT(bytes(), std::uint64_t{16} << 20);
}

TEST_F(GrowthTest, OnAFullDiskWhatFreesRoomIsStoredAndNothingElse) {
  if (::mount("tutti-test", folder.c_str(), "tmpfs", 0, "size=8m") != 0)
    GTEST_SKIP() << "mounting a small disk needs root";
  auto store = open();
  ASSERT_NE(store, nullptr);
  const std::vector<Write> job{{key_of(1), std::string(600, 'j')}};
  ASSERT_EQ(commit(*store, job).status, Done::done);
  std::ofstream(folder / "filler") << std::string(16 << 20, 'x');
  CommitResult refused;
  // What is taken already is enough for a few.
  for (int tries = 0; tries < 1000 && refused.status == Done::done; ++tries) refused = commit(*store, job);
  EXPECT_EQ(refused.status, Done::unknown);
  EXPECT_EQ(refused.why, "the disk is full");
  revision = store->load()->revision;
  for (int at = 0; at < 30; ++at) {
    const std::vector<Write> cancel{{key_of(1), std::string(600, static_cast<char>('a' + at % 26))}};
    const auto done = store->commit_from_reserve(revision, cancel);
    ASSERT_EQ(done.status, Done::done) << at << done.why;
    EXPECT_TRUE(done.from_reserve);
    EXPECT_EQ(done.why, "the disk is full");
    revision = done.revision;
    EXPECT_EQ(commit(*store, job).status, Done::unknown) << "the reserve is not for everybody";
  }
  std::filesystem::remove(folder / "filler");
  EXPECT_EQ(commit(*store, job).status, Done::done);
}

}  // namespace
}  // namespace tutti::store
