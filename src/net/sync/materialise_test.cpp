#include "net/sync/materialise.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/bytes.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/folder_test.hpp"
#include "net/sync/scan.hpp"

namespace tutti::sync {
namespace {

using Names = std::vector<std::string>;

class Materialise : public FolderTest {
 protected:
  Materialise() {
    std::filesystem::create_directory(path("from"));
    std::filesystem::create_directory(path("to"));
  }

  Manifest scanned() const {
    const auto result = scan(path("from"));
    EXPECT_TRUE(result) << result.error().text();
    return result->manifest;
  }

  // What travels between two machines: the encoded manifest, and the blobs that the other one lacks.
  Manifest send() {
    const auto manifest = decode(encode(scanned()));
    EXPECT_TRUE(manifest) << manifest.error().text();
    for (const auto& entry : manifest->entries) {
      if (entry.kind != Entry::Kind::file) continue;
      for (std::size_t at = 0; at < entry.chunks.size(); ++at) {
        const auto chunk = read_chunk(path("from/" + entry.path), {entry.bytes, at, entry.chunks[at]});
        EXPECT_TRUE(chunk) << chunk.error().text();
        const auto stored = store_.put(entry.chunks[at], as_bytes(*chunk));
        EXPECT_TRUE(stored) << stored.error().text();
      }
    }
    return *manifest;
  }

  Result<> make(const Manifest& manifest) const { return materialise(manifest, store_, path("to/job")); }

  BlobStore store_{path("store")};
};

TEST_F(Materialise, AFolderArrivesAsItWas) {
  write("from/main.py", "print()\n");
  write("from/empty", "");
  write("from/a/b/c/deep", "deep");
  write("from/a.txt", "beside a/");
  write("from/line\nbreak \xff", "odd name");
  write("from/large", std::string(static_cast<std::size_t>(chunk_bytes.count()), 'x') + "and more");
  write("from/bin/run", "#!/bin/sh\n");
  chmod(path("from/bin/run").c_str(), 0755);
  std::filesystem::create_directories(path("from/empty folder/inner"));
  std::filesystem::create_symlink("../main.py", path("from/a/link"));
  std::filesystem::create_symlink("nowhere", path("from/dangling"));
  std::filesystem::create_symlink("a/b", path("from/to folder"));

  const auto made = make(send());
  ASSERT_TRUE(made) << made.error().text();
  const auto arrived = scan(path("to/job"));
  ASSERT_TRUE(arrived) << arrived.error().text();
  EXPECT_EQ(arrived->manifest, scanned());
  EXPECT_EQ(names_in("to"), Names{"job"});
  EXPECT_EQ(read("to/job/a/link"), "print()\n");
  struct stat status {};
  ASSERT_EQ(stat(path("to/job").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u) << "other users of the node do not look in";
}

TEST_F(Materialise, LinksThatLeadInACircleAreFollowedByNobody) {
  write("from/a/file", "text");
  std::filesystem::create_symlink(".", path("from/here"));
  std::filesystem::create_symlink("..", path("from/a/up"));
  std::filesystem::create_symlink("itself", path("from/itself"));
  const auto made = make(send());
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(scan(path("to/job"))->manifest, scanned());
  EXPECT_EQ(read("to/job/here/a/up/a/file"), "text");
}

TEST_F(Materialise, AnEmptyFolderArrives) {
  ASSERT_TRUE(make({}));
  EXPECT_TRUE(std::filesystem::is_directory(path("to/job")));
}

TEST_F(Materialise, MissingNamesEachBlobOnce) {
  write("from/a", "same");
  write("from/b", "same");
  write("from/c", "other");
  std::filesystem::create_directory(path("from/d"));
  auto expected = Names{hash_bytes(as_bytes("same")), hash_bytes(as_bytes("other"))};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(missing(scanned(), store_), expected);
  ASSERT_TRUE(store_.put(hash_bytes(as_bytes("same")), as_bytes("same")));
  EXPECT_EQ(missing(scanned(), store_), Names{hash_bytes(as_bytes("other"))});
  EXPECT_EQ(missing(send(), store_), Names());
}

TEST_F(Materialise, WithoutABlobNothingIsLeft) {
  write("from/a", "here");
  write("from/b", "lost");
  const auto manifest = send();
  std::filesystem::remove(store_.path_of(hash_bytes(as_bytes("lost"))));
  const auto made = make(manifest);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().context(), "file 'b'");
  EXPECT_EQ(names_in("to"), Names());
}

TEST_F(Materialise, ADamagedBlobIsRefusedAndMissingFromThenOn) {
  write("from/a", "right");
  const auto manifest = send();
  const auto hash = hash_bytes(as_bytes("right"));
  std::ofstream(store_.path_of(hash)) << "wrong";
  EXPECT_FALSE(make(manifest));
  EXPECT_EQ(names_in("to"), Names());
  EXPECT_EQ(missing(manifest, store_), Names{hash});
  EXPECT_TRUE(make(send()));
}

TEST_F(Materialise, AFalseSizeIsRefused) {
  write("from/a", "content");
  auto manifest = send();
  manifest.entries[0].bytes = Bytes(0);
  EXPECT_FALSE(make(manifest));
  EXPECT_EQ(names_in("to"), Names());
}

// Asked before each of three entries, and before each chunk of a file.
TEST_F(Materialise, WhatNobodyWantsAnyMoreEndsBeforeTheNextFileOrChunk) {
  write("from/a", std::string(static_cast<std::size_t>(chunk_bytes.count()), 'x') + "and more");
  write("from/b", "small");
  std::filesystem::create_directory(path("from/c"));
  const auto manifest = send();
  const int questions = 3 + 2 + 1;
  for (int wanted = 0; wanted < questions; ++wanted) {
    int asked = 0;
    const auto made = materialise(manifest, store_, path("to/job"), {}, [&] { return ++asked <= wanted; });
    ASSERT_FALSE(made) << wanted;
    EXPECT_NE(made.error().text().find("nobody wants it any more"), std::string::npos) << made.error().text();
    EXPECT_EQ(asked, wanted + 1) << "nothing is made after the first no";
    EXPECT_EQ(names_in("to"), Names());
  }
  int asked = 0;
  ASSERT_TRUE(materialise(manifest, store_, path("to/job"), {}, [&] { return ++asked <= questions; }));
  EXPECT_EQ(asked, questions);
}

TEST_F(Materialise, AHostileManifestIsRefused) {
  EXPECT_FALSE(make({{{.path = "../escaped", .kind = Entry::Kind::folder}}}));
  EXPECT_FALSE(make({{{.path = "l", .kind = Entry::Kind::link, .link_target = "/"}}}));
  EXPECT_FALSE(materialise({{{.path = "d", .kind = Entry::Kind::folder}}}, store_, path("to/job"),
                           {.entries_max = 0}));
  EXPECT_EQ(names_in("to"), Names());
}

TEST_F(Materialise, ATargetThatExistsIsLeftAlone) {
  write("from/a", "new");
  write("to/job/checkpoint", "precious");
  EXPECT_FALSE(make(send()));
  EXPECT_EQ(names_in("to/job"), Names{"checkpoint"});
  EXPECT_FALSE(materialise({}, store_, ""));
  EXPECT_FALSE(materialise({}, store_, path("to/other/")));
}

// The kernel kills the child when it writes beyond its limit, in the middle of the second file.
TEST_F(Materialise, AnInterruptedOneIsNeverSeenAndCleanedByTheNext) {
  write("from/a", "small");
  write("from/b", std::string(300'000, 'x'));
  const auto manifest = send();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    const rlimit small_files{.rlim_cur = 4096, .rlim_max = 4096};
    setrlimit(RLIMIT_FSIZE, &small_files);
    _exit(make(manifest) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
  EXPECT_EQ(names_in("to"), Names{"job.partial"});
  EXPECT_EQ(read("to/job.partial/a"), "small");

  write("to/job.partial/left over/file", "");
  const auto made = make(manifest);
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(names_in("to"), Names{"job"});
  EXPECT_EQ(scan(path("to/job"))->manifest, manifest);
}

}  // namespace
}  // namespace tutti::sync
