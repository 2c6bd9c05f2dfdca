#include "control/store/sqlite/sqlite_store.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "control/store/memory/conformance.hpp"

namespace tutti::store {
namespace {

using Status = CommitResult::Status;

// A layer under SQLite that fails writes and syncs on request: what a full or broken disk looks like from
// there.
class FaultyDisk {
 public:
  static FaultyDisk& instance() {
    static FaultyDisk disk;
    return disk;
  }

  // Each operation from the `after`th one on fails with `code`, until heal().
  void fail(int code, int after = 0) {
    code_ = code;
    left_ = after;
  }
  void heal() { code_ = SQLITE_OK; }

 private:
  FaultyDisk() : real_(sqlite3_vfs_find(nullptr)), faulty_(*real_) {
    faulty_.zName = "faulty";
    faulty_.xOpen = open;
    sqlite3_vfs_register(&faulty_, 1);
  }

  bool strikes() { return code_ != SQLITE_OK && left_-- <= 0; }

  static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* flags_out) {
    FaultyDisk& disk = instance();
    const int code = disk.real_->xOpen(disk.real_, name, file, flags, flags_out);
    if (file->pMethods == nullptr) return code;
    auto [entry, added] = disk.methods_.try_emplace(file->pMethods, *file->pMethods);
    if (added) {
      disk.write_ = entry->second.xWrite;
      disk.sync_ = entry->second.xSync;
      entry->second.xWrite = write;
      entry->second.xSync = sync;
    }
    file->pMethods = &entry->second;
    return code;
  }
  static int write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
    return instance().strikes() ? instance().code_ : instance().write_(file, data, size, offset);
  }
  static int sync(sqlite3_file* file, int flags) {
    return instance().strikes() ? instance().code_ : instance().sync_(file, flags);
  }

  sqlite3_vfs* real_;
  sqlite3_vfs faulty_;
  std::map<const sqlite3_io_methods*, sqlite3_io_methods> methods_;
  int (*write_)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;
  int (*sync_)(sqlite3_file*, int) = nullptr;
  int code_ = SQLITE_OK;
  int left_ = 0;
};

struct SqliteStoreTest : testing::Test {
  FaultyDisk& disk = FaultyDisk::instance();
  std::filesystem::path folder = testing::TempDir() + "tutti_sqlite_store_" + std::to_string(getpid());
  std::string path = folder / "store.db";

  void SetUp() override { std::filesystem::create_directory(folder); }
  void TearDown() override {
    disk.heal();
    std::filesystem::remove_all(folder);
  }

  std::unique_ptr<SqliteStore> open() const {
    auto store = SqliteStore::open(path);
    EXPECT_TRUE(store.ok()) << store.error().text();
    return store ? std::move(*store) : nullptr;
  }
  std::string refusal() const {
    const auto store = SqliteStore::open(path);
    return store ? "opened" : store.error().text();
  }
  void run_sql(const char* sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  void write_file(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

// Runs `body` in a process of its own and returns its id.
pid_t in_child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(0);
  }
  return pid;
}

// Three keys that every commit sets to its own number: a torn commit would show.
std::vector<Write> numbered(std::uint64_t number) {
  const std::string text = std::to_string(number);
  return {{"a", text}, {"b", text}, {"c", text + std::string(5000, ' ')}};
}

void expect_whole(const Contents& contents) {
  const std::string text = std::to_string(contents.revision);
  EXPECT_EQ(contents.objects.at("a"), text);
  EXPECT_EQ(contents.objects.at("b"), text);
  EXPECT_EQ(contents.objects.at("c"), text + std::string(5000, ' '));
}

TEST_F(SqliteStoreTest, Conforms) { expect_conforms(*open()); }

TEST_F(SqliteStoreTest, KeepsEverythingOverAReopen) {
  const std::string odd("a\0b\xff\n", 5);
  ASSERT_EQ(open()->commit(0, std::vector<Write>{{odd, odd}, {"empty", ""}, {"gone", "1"}}).status,
            Status::done);
  ASSERT_EQ(open()->commit(1, std::vector<Write>{{"gone", std::nullopt}}).revision, 2U);
  const auto contents = open()->load();
  ASSERT_TRUE(contents.ok()) << contents.error().text();
  EXPECT_EQ(contents->revision, 2U);
  EXPECT_EQ(contents->objects, (std::map<std::string, std::string>{{odd, odd}, {"empty", ""}}));
}

TEST_F(SqliteStoreTest, AnotherWriterIsAConflict) {
  const auto store = open();
  ASSERT_EQ(store->commit(0, numbered(1)).status, Status::done);
  run_sql("UPDATE meta SET revision = 9");
  const auto result = store->commit(1, numbered(2));
  EXPECT_EQ(result.status, Status::conflict);
  EXPECT_EQ(result.why, "somebody else has written to the store");
  EXPECT_EQ(store->load()->objects.at("a"), "1");
  EXPECT_EQ(store->commit(9, numbered(10)).revision, 10U);
}

TEST_F(SqliteStoreTest, ASecondControllerIsRefused) {
  const auto store = open();
  EXPECT_EQ(refusal(), path + " : another controller (pid " + std::to_string(getpid()) + ") uses this store");
}

TEST_F(SqliteStoreTest, FilesAreForTheirOwnerAlone) {
  const auto store = open();
  ASSERT_EQ(store->commit(0, numbered(1)).status, Status::done);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(static_cast<unsigned>(entry.status().permissions()), 0600U) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 5);
}

TEST_F(SqliteStoreTest, AKilledControllerLeavesWholeCommits) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t child = in_child([&] {
    auto store = SqliteStore::open(path);
    for (std::uint64_t number = 0; store; ++number) {
      const bool done = (*store)->commit(number, numbered(number + 1)).status == Status::done;
      if (!done || write(report[1], "x", 1) != 1) return;
    }
  });
  close(report[1]);
  std::uint64_t reported = 0;
  char byte = 0;
  while (reported < 25 && read(report[0], &byte, 1) == 1) ++reported;
  kill(child, SIGKILL);
  while (read(report[0], &byte, 1) == 1) ++reported;
  close(report[0]);
  waitpid(child, nullptr, 0);

  const auto store = open();
  const auto contents = store->load();
  ASSERT_TRUE(contents.ok()) << contents.error().text();
  EXPECT_GE(reported, 25U);
  // The last commit may be durable without having been reported.
  EXPECT_GE(contents->revision, reported);
  EXPECT_LE(contents->revision, reported + 1);
  expect_whole(*contents);
  EXPECT_EQ(store->commit(contents->revision, numbered(contents->revision + 1)).status, Status::done);
}

TEST_F(SqliteStoreTest, AFullDiskIsUnknownAndPasses) {
  const auto store = open();
  ASSERT_EQ(store->commit(0, numbered(1)).status, Status::done);
  disk.fail(SQLITE_FULL);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto result = store->commit(1, numbered(2));
    EXPECT_EQ(result.status, Status::unknown);
    EXPECT_EQ(result.why, "the disk is full");
  }
  EXPECT_EQ(store->load()->revision, 1U);
  disk.heal();
  EXPECT_EQ(store->commit(1, numbered(2)).status, Status::done);
  expect_whole(*store->load());
}

// Whichever write or sync of a commit fails, it has landed whole or not at all, and the next ones work.
TEST_F(SqliteStoreTest, AnyFailingOperationLeavesAWholeCommit) {
  std::uint64_t revision = 0;
  {
    const auto store = open();
    ASSERT_EQ(store->commit(revision, numbered(revision + 1)).status, Status::done);
    ++revision;
    bool reached_the_end = false;
    for (int after = 0; !reached_the_end && after < 100; ++after) {
      disk.fail(SQLITE_IOERR_WRITE, after);
      const auto result = store->commit(revision, numbered(revision + 1));
      disk.heal();
      reached_the_end = result.status == Status::done;
      if (!reached_the_end) {
        EXPECT_EQ(result.status, Status::unknown);
        EXPECT_EQ(result.why.find("the disk failed"), 0U) << result.why;
      }
      const auto contents = store->load();
      ASSERT_TRUE(contents.ok()) << contents.error().text();
      expect_whole(*contents);
      revision = contents->revision;
      ASSERT_EQ(store->commit(revision, numbered(revision + 1)).status, Status::done);
      ++revision;
    }
    EXPECT_TRUE(reached_the_end);
  }
  const auto contents = open()->load();
  EXPECT_EQ(contents->revision, revision);
  expect_whole(*contents);
}

TEST_F(SqliteStoreTest, AFullDiskAtTheStart) {
  disk.fail(SQLITE_FULL);
  EXPECT_EQ(refusal(), path + " : the disk is full");
  disk.heal();
  EXPECT_EQ(refusal(), "opened");
}

TEST_F(SqliteStoreTest, AFileThatSomebodyElseHolds) {
  const auto store = open();
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_EQ(store->load()->revision, 0U);
  sqlite3_close(other);
  EXPECT_EQ(store->commit(0, numbered(1)).status, Status::done);
}

TEST_F(SqliteStoreTest, AFolderThatCannotBeWritten) {
  std::filesystem::permissions(folder, std::filesystem::perms(0555));
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t child = in_child([&] {
    // The permissions of files do not hold for root.
    if (geteuid() == 0 && setuid(65534) != 0) return;
    const std::string text = refusal();
    (void)!write(report[1], text.data(), text.size());
  });
  close(report[1]);
  char buffer[512];
  const ssize_t length = read(report[0], buffer, sizeof buffer);
  close(report[0]);
  waitpid(child, nullptr, 0);
  std::filesystem::permissions(folder, std::filesystem::perms(0755));
  EXPECT_EQ(std::string(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0))),
            path + ": " + path + ".lock : the lock file cannot be opened: Permission denied");
}

TEST_F(SqliteStoreTest, AFolderInPlaceOfTheFile) {
  std::filesystem::create_directory(path);
  EXPECT_EQ(refusal(), path + " : the store cannot be opened: Is a directory");
}

TEST_F(SqliteStoreTest, GarbageIsNoStore) {
  write_file(std::string(10'000, 'x'));
  EXPECT_EQ(refusal(), path + " : the file is not a store of tutti, or its beginning is damaged");
  EXPECT_NE(SqliteStore::open(path).error().remedy().find("backup"), std::string::npos);
}

TEST_F(SqliteStoreTest, DamageIsFoundAtTheStart) {
  {
    const auto store = open();
    std::vector<Write> writes;
    for (int number = 0; number < 200; ++number)
      writes.push_back({"job/" + std::to_string(number), std::string(500, 'v')});
    ASSERT_EQ(store->commit(0, writes).status, Status::done);
  }
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(4096 * 5);
  file << std::string(4096, '\xee');
  file.close();
  EXPECT_EQ(refusal().find(path + " : the file is damaged"), 0U) << refusal();
}

// ---- a store that is older than what was committed

struct OlderStoreTest : SqliteStoreTest {
  // A controller that is killed leaves its last commits in the write-ahead log.
  void commit_and_be_killed(std::uint64_t commits) const {
    const pid_t child = in_child([&] {
      auto store = SqliteStore::open(path, {.kept_key = "a", .accept_older = false});
      for (std::uint64_t number = 0; store && number < commits; ++number)
        (void)(*store)->commit(number, numbered(number + 1));
      kill(getpid(), SIGKILL);
    });
    waitpid(child, nullptr, 0);
  }
  Result<std::unique_ptr<SqliteStore>> accept() const {
    return SqliteStore::open(path, {.kept_key = "a", .accept_older = true});
  }
};

TEST_F(OlderStoreTest, WithoutItsWriteAheadLogItIsRefusedAndNothingIsLostByThat) {
  commit_and_be_killed(7);
  std::filesystem::rename(path + "-wal", path + "-away");
  EXPECT_NE(refusal().find("it is at revision 0, and revision 7 was committed"), std::string::npos)
      << refusal();
  EXPECT_NE(SqliteStore::open(path).error().remedy().find("--accept-older-store"), std::string::npos);
  std::filesystem::rename(path + "-away", path + "-wal");
  const auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->load()->revision, 7U);
}

// A power cut can leave an empty one behind.
TEST_F(OlderStoreTest, WithoutItsWriteAheadLogAndWithAnEmptyNoteItIsRefusedToo) {
  commit_and_be_killed(7);
  std::filesystem::rename(path + "-wal", path + "-away");
  std::filesystem::resize_file(path + ".last", 0);
  EXPECT_NE(refusal().find("there is nothing in it although it was used"), std::string::npos) << refusal();
  std::filesystem::remove(path + ".last");
  EXPECT_NE(refusal().find("there is nothing in it although it was used"), std::string::npos) << refusal();
  std::filesystem::rename(path + "-away", path + "-wal");
  const auto store = open();
  ASSERT_NE(store, nullptr) << "with its log it tells all by itself";
  EXPECT_EQ(store->load()->revision, 7U);
}

TEST_F(OlderStoreTest, ADamagedWriteAheadLogIsNoticed) {
  commit_and_be_killed(7);
  std::filesystem::resize_file(path + "-wal", std::filesystem::file_size(path + "-wal") - 100);
  EXPECT_NE(refusal().find("and revision 7 was committed"), std::string::npos) << refusal();
}

TEST_F(OlderStoreTest, AnOlderCopyIsAcceptedWhenToldToAndKeepsWhatMustNotComeBack) {
  commit_and_be_killed(3);
  { const auto store = open(); }
  std::filesystem::copy_file(path, path + ".copy");
  ASSERT_EQ(open()->commit(3, std::vector<Write>{{"a", "9"}, {"b", "9"}}).status, Status::done);
  std::filesystem::rename(path + ".copy", path);
  EXPECT_NE(refusal().find("it is at revision 3, and revision 4 was committed"), std::string::npos);
  {
    const auto store = accept();
    ASSERT_TRUE(store.ok()) << store.error().text();
    const auto contents = (*store)->load();
    EXPECT_EQ(contents->revision, 5U) << "revisions do not come back either";
    EXPECT_EQ(contents->objects.at("b"), "3") << "what was lost is lost";
  }
  EXPECT_EQ(refusal(), "opened") << "it is told once";
}

// What the remedy for a damaged store advises.
TEST_F(OlderStoreTest, AStoreThatWasMovedAwayLeavesWhatMustNotComeBack) {
  commit_and_be_killed(4);
  for (const char* part : {"", "-wal", "-shm"})
    std::filesystem::rename(path + part, folder / (std::string("away") + part));
  EXPECT_NE(refusal().find("revision 4 was committed"), std::string::npos) << refusal();
  const auto store = accept();
  ASSERT_TRUE(store.ok()) << store.error().text();
  EXPECT_EQ((*store)->load()->objects, (std::map<std::string, std::string>{{"a", "4"}}));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabase) {
  run_sql("CREATE TABLE songs(title TEXT)");
  EXPECT_EQ(refusal(), path + " : the file is a database of something else");
}

TEST_F(SqliteStoreTest, AStoreOfANewerTutti) {
  { const auto store = open(); }
  run_sql("UPDATE meta SET schema = 3");
  EXPECT_EQ(refusal(), path + " : a newer tutti has written this store (schema 3, this one knows 2)");
  run_sql("DELETE FROM meta");
  EXPECT_EQ(refusal(), path + " : the store has lost its version");
}

}  // namespace
}  // namespace tutti::store
