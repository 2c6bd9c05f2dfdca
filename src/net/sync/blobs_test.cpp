#include "net/sync/blobs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <utility>

#include "base/bytes.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/folder_test.hpp"

namespace {

std::function<void()> before_unlink;  // once

}  // namespace

// In place of the system's.
extern "C" int unlink(const char* path) noexcept {
  if (const auto happen = std::exchange(before_unlink, nullptr)) happen();
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

namespace tutti::sync {
namespace {

using Hashes = std::vector<std::string>;

class Blobs : public FolderTest {
 protected:
  std::string put(const std::string& content) {
    const std::string hash = hash_bytes(as_bytes(content));
    const auto stored = store_.put(hash, as_bytes(content));
    EXPECT_TRUE(stored) << stored.error().text();
    return hash;
  }

  static void set_age(const std::string& file, std::chrono::seconds age) {
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - age);
  }

  BlobStore store_{path("store")};
};

TEST_F(Blobs, AreReadAsTheyWereWritten) {
  for (const auto& content : {std::string(), std::string("a\0b", 3), std::string(300'000, 'x')}) {
    const auto hash = hash_bytes(as_bytes(content));
    EXPECT_FALSE(store_.has(hash));
    EXPECT_EQ(store_.get(hash).value(), std::nullopt);
    EXPECT_EQ(put(content), hash);
    EXPECT_TRUE(store_.has(hash));
    EXPECT_EQ(store_.get(hash).value(), content);
    EXPECT_EQ(put(content), hash);
  }
}

TEST_F(Blobs, AreForTheOwnerOnlyAndNothingElseIsLeft) {
  const auto hash = put("a");
  EXPECT_EQ(store_.path_of(hash), path("store/" + hash.substr(0, 2) + "/" + hash.substr(2)));
  struct stat status {};
  ASSERT_EQ(stat(store_.path_of(hash).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(path("store").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(names_in("store"), std::vector{hash.substr(0, 2)});
}

TEST_F(Blobs, OfAnotherHashAreRefused) {
  const auto hash = hash_bytes(as_bytes("a"));
  const auto stored = store_.put(hash, as_bytes("b"));
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code(), ErrorCode::invalid);
  EXPECT_FALSE(store_.has(hash));
}

TEST_F(Blobs, AreNamedByHashesOnly) {
  write("secret", "s");
  for (const auto& name : {std::string(), std::string("../secret"), std::string(64, 'A')}) {
    EXPECT_FALSE(store_.has(name));
    EXPECT_FALSE(store_.put(name, {}));
    EXPECT_FALSE(store_.get(name));
    EXPECT_FALSE(store_.copy(Hashes{name}, path("copy"), false));
  }
  EXPECT_FALSE(std::filesystem::exists(path("copy")));
}

TEST_F(Blobs, ThatAreDamagedAreDropped) {
  for (const auto& damage : {std::string("wrong"), std::string("rig"), std::string()}) {
    const auto hash = put("right");
    std::ofstream(store_.path_of(hash)) << damage;
    const auto told = store_.get(hash);
    ASSERT_FALSE(told);
    EXPECT_EQ(told.error().code(), ErrorCode::damaged);
    EXPECT_FALSE(store_.has(hash));
    EXPECT_EQ(store_.get(hash).value(), std::nullopt) << "told once";

    put("right");
    std::ofstream(store_.path_of(hash)) << damage;
    EXPECT_FALSE(store_.copy(Hashes{hash}, path("copy"), false));
    EXPECT_FALSE(store_.has(hash));
    std::filesystem::remove(path("copy"));
  }
}

// A folder in its place cannot be read as a file, by root either.
TEST_F(Blobs, ThatCannotBeReadAreNeitherMissingNorDropped) {
  const auto hash = put("right");
  std::filesystem::rename(store_.path_of(hash), path("aside"));
  std::filesystem::create_directory(store_.path_of(hash));
  const auto told = store_.get(hash);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code(), ErrorCode::failed) << told.error().text();
  std::filesystem::remove(store_.path_of(hash));
  std::filesystem::rename(path("aside"), store_.path_of(hash));
  EXPECT_EQ(store_.get(hash).value(), "right");
}

TEST_F(Blobs, CopiesAreFilesOfTheirOwn) {
  const std::string content(300'000, 'x');
  const auto hash = put(content);
  EXPECT_EQ(store_.copy(Hashes{hash}, path("copy"), true).value(), Bytes(300'000));
  std::ofstream(path("copy"), std::ios::app) << "more";
  EXPECT_EQ(read("copy"), content + "more");
  EXPECT_EQ(store_.get(hash).value(), content);
  EXPECT_FALSE(store_.copy(Hashes{hash}, path("copy"), true)) << "a file that exists is not overwritten";
}

TEST_F(Blobs, ManyOfThemMakeOneFile) {
  const auto first = put(std::string(100'000, 'a'));
  const auto last = put("z");
  EXPECT_EQ(store_.copy(Hashes{first, last, first}, path("copy"), false).value(), Bytes(200'001));
  EXPECT_EQ(read("copy"), std::string(100'000, 'a') + "z" + std::string(100'000, 'a'));
  EXPECT_FALSE(store_.copy(Hashes{first, hash_bytes(as_bytes("absent"))}, path("other"), false));
  EXPECT_FALSE(std::filesystem::exists(path("other"))) << "not begun when a part is missing";
  std::ofstream(store_.path_of(last)) << "y";
  EXPECT_FALSE(store_.copy(Hashes{first, last}, path("other"), false));
  EXPECT_FALSE(store_.has(last)) << "the damaged one is dropped";
  EXPECT_TRUE(store_.has(first));
}

TEST_F(Blobs, TrimRemovesTheLeastRecentlyUsed) {
  EXPECT_TRUE(store_.trim(Bytes(0)));
  const auto old = put("old!");
  const auto used = put("used");
  const auto copied = put("copy");
  const auto fresh = put("new!");
  set_age(store_.path_of(old), 30s);
  set_age(store_.path_of(used), 50s);
  set_age(store_.path_of(copied), 40s);
  set_age(store_.path_of(fresh), 20s);
  ASSERT_TRUE(store_.get(used));
  ASSERT_TRUE(store_.copy(Hashes{copied}, path("copied"), false));

  const auto room_for = [](std::int64_t count) { return Bytes(count * blob_room_min.count()); };
  ASSERT_TRUE(store_.trim(room_for(4)));
  EXPECT_TRUE(store_.has(old));
  ASSERT_TRUE(store_.trim(room_for(4) - Bytes(1)));
  EXPECT_FALSE(store_.has(old));
  EXPECT_TRUE(store_.has(fresh));
  ASSERT_TRUE(store_.trim(room_for(2)));
  EXPECT_FALSE(store_.has(fresh));
  EXPECT_TRUE(store_.has(used));
  EXPECT_TRUE(store_.has(copied));
  ASSERT_TRUE(store_.trim(Bytes(0)));
  EXPECT_FALSE(store_.has(used));
}

TEST_F(Blobs, TrimLeavesOnlySoManyHoweverSmallTheyAre) {
  const auto old = put("a");
  const auto fresh = put("b");
  set_age(store_.path_of(old), 30s);
  const auto left = store_.trim({.bytes_max = mib(1), .count_max = 1});
  ASSERT_TRUE(left);
  EXPECT_EQ(left->count, 1U);
  EXPECT_EQ(left->bytes, blob_room_min);
  EXPECT_FALSE(store_.has(old));
  EXPECT_TRUE(store_.has(fresh));
}

TEST_F(Blobs, TrimGoesByTheDateThatItIsGiven) {
  const auto hash = put("a");
  const Instant then(std::chrono::seconds(time(nullptr)));
  ASSERT_TRUE(store_.trim({.bytes_max = Bytes(0), .age_min = 1h, .now = then}));
  EXPECT_TRUE(store_.has(hash));
  ASSERT_TRUE(store_.trim({.bytes_max = mib(1), .age_max = 1h, .now = then + 2h}));
  EXPECT_FALSE(store_.has(hash));
}

// Of very many the last go long after they were listed.
TEST_F(Blobs, TrimLeavesWhatWasUsedWhileItRemovesOthers) {
  const auto first = put("first");
  const auto second = put("second");
  set_age(store_.path_of(first), 50s);
  set_age(store_.path_of(second), 40s);
  before_unlink = [&] { EXPECT_TRUE(store_.use(second)); };
  const auto left = store_.trim({.bytes_max = Bytes(0)});
  ASSERT_TRUE(left);
  EXPECT_EQ(left->count, 1U);
  EXPECT_FALSE(store_.has(first));
  EXPECT_TRUE(store_.has(second));
}

TEST_F(Blobs, TrimRemovesWhatAnInterruptedWriteLeft) {
  const auto hash = put("a");
  write("store/new-abandoned", "x");
  write("store/new-underway", "x");
  write("store/other", "x");
  set_age(path("store/new-abandoned"), 2h);
  ASSERT_TRUE(store_.trim(mib(1)));
  EXPECT_FALSE(std::filesystem::exists(path("store/new-abandoned")));
  EXPECT_TRUE(std::filesystem::exists(path("store/new-underway")));
  EXPECT_TRUE(std::filesystem::exists(path("store/other")));
  EXPECT_TRUE(store_.has(hash));
}

}  // namespace
}  // namespace tutti::sync
