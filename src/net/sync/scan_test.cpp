#include "net/sync/scan.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/folder_test.hpp"

namespace tutti::sync {
namespace {

class Scan : public FolderTest {
 protected:
  // The paths found, or the error.
  std::vector<std::string> paths(const ScanOptions& options = {}) const {
    const auto result = scan(folder(), options);
    if (!result) return {result.error().text()};
    std::vector<std::string> paths;
    for (const auto& entry : result->manifest.entries) paths.push_back(entry.path);
    return paths;
  }
};

using Paths = std::vector<std::string>;

TEST_F(Scan, FindsFilesFoldersAndLinksInOrder) {
  write("d/e/f", "content");
  write("d.txt", "");
  write("run.sh", "#!/bin/sh\n");
  std::filesystem::create_directory(path("empty"));
  std::filesystem::create_symlink("e/f", path("d/link"));
  chmod(path("run.sh").c_str(), 0755);

  const auto result = scan(folder());
  ASSERT_TRUE(result) << result.error().text();
  const Manifest expected{{
      {.path = "d", .kind = Entry::Kind::folder},
      {.path = "d.txt", .kind = Entry::Kind::file, .chunks = {hash_bytes({})}},
      {.path = "d/e", .kind = Entry::Kind::folder},
      {.path = "d/e/f",
       .kind = Entry::Kind::file,
       .chunks = {hash_bytes(as_bytes("content"))},
       .bytes = Bytes(7)},
      {.path = "d/link", .kind = Entry::Kind::link, .link_target = "e/f"},
      {.path = "empty", .kind = Entry::Kind::folder},
      {.path = "run.sh",
       .kind = Entry::Kind::file,
       .chunks = {hash_bytes(as_bytes("#!/bin/sh\n"))},
       .bytes = Bytes(10),
       .executable = true},
  }};
  EXPECT_EQ(result->manifest, expected);
  EXPECT_EQ(result->bytes, Bytes(17));
  EXPECT_TRUE(result->warnings.empty());

  EXPECT_TRUE(decode(encode(result->manifest)));
  EXPECT_EQ(encode(scan(folder())->manifest), encode(result->manifest));
}

TEST_F(Scan, OneChangeInALargeFileIsOneOtherChunk) {
  std::string content(static_cast<std::size_t>(2 * chunk_bytes.count()), 'a');
  write("large", content + "tail");
  const auto before = scan(folder());
  ASSERT_TRUE(before) << before.error().text();
  const auto& chunks = before->manifest.entries[0].chunks;
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0], chunks[1]) << "the same content has the same name";
  EXPECT_EQ(chunks[2], hash_bytes(as_bytes("tail")));
  content[static_cast<std::size_t>(chunk_bytes.count())] = 'b';
  write("large", content + "tail");
  const auto after = scan(folder());
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(after->manifest.entries[0].chunks[0], chunks[0]);
  EXPECT_NE(after->manifest.entries[0].chunks[1], chunks[1]);
  EXPECT_EQ(after->manifest.entries[0].chunks[2], chunks[2]);
}

TEST_F(Scan, LeavesOutWhatTheRulesSayAndGit) {
  write(".tuttiignore", "*.log\n!keep.log\n/data/\ncache/\n!cache/kept\n");
  write(".git/config", "");
  write("sub/.git", "gitdir: ../.git/modules/sub\n");
  write("a.log", "");
  write("keep.log", "");
  write("data/big", "");
  write("sub/data/small", "");
  write("sub/cache/kept", "");
  EXPECT_EQ(paths(), (Paths{".tuttiignore", "keep.log", "sub", "sub/data", "sub/data/small"}));
}

TEST_F(Scan, RefusesRulesWithoutEnd) {
  write(".tuttiignore", std::string((1 << 20) + 1, '\n'));
  EXPECT_FALSE(scan(folder()));
}

TEST_F(Scan, WarnsOfSpecialFilesAndLinksThatLeadOut) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/etc/passwd", path("absolute"));
  std::filesystem::create_symlink("../x", path("climbs"));
  write("a", "");
  const auto result = scan(folder());
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->manifest.entries.size(), 1u);
  auto warnings = result->warnings;
  std::sort(warnings.begin(), warnings.end());
  EXPECT_EQ(warnings, (Paths{"'absolute' is left out: the link leads to '/etc/passwd', out of the folder",
                             "'climbs' is left out: the link leads to '../x', out of the folder",
                             "'pipe' is left out: it is no file, folder or link"}));
}

TEST_F(Scan, CountsTheWarningsItDoesNotShow) {
  for (int i = 0; i < 103; ++i) std::filesystem::create_symlink("/", path(std::to_string(i)));
  const auto result = scan(folder());
  ASSERT_TRUE(result) << result.error().text();
  ASSERT_EQ(result->warnings.size(), 101u);
  EXPECT_EQ(result->warnings.back(), "and 3 more");
}

TEST_F(Scan, AFileThatChangesIsAnErrorThatNamesIt) {
  write("d/a", "before");
  const auto result = scan(folder(), {.on_file = [&](const std::string& name) { write(name, "after it"); }});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "'d/a' changed while the folder was read");
  EXPECT_EQ(result.error().code(), ErrorCode::failed);
}

TEST_F(Scan, AFileThatVanishesIsAnErrorThatNamesIt) {
  write("d/a", "");
  const auto remove = [&](const std::string& name) { std::filesystem::remove(path(name)); };
  const auto result = scan(folder(), {.on_file = remove});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "'d/a' vanished while the folder was read");
}

TEST_F(Scan, AFileThatBecomesALinkOrAPipeIsAnError) {
  write("a", "");
  const auto relink = [&](const std::string& name) {
    std::filesystem::remove(path(name));
    std::filesystem::create_symlink("/etc/passwd", path(name));
  };
  EXPECT_FALSE(scan(folder(), {.on_file = relink}));
  std::filesystem::remove(path("a"));
  write("a", "");
  const auto to_pipe = [&](const std::string& name) {
    std::filesystem::remove(path(name));
    mkfifo(path(name).c_str(), 0600);
  };
  EXPECT_FALSE(scan(folder(), {.on_file = to_pipe}));
}

TEST_F(Scan, TooManyEntriesAreRefusedBeforeAFileIsRead) {
  for (int i = 0; i < 8; ++i) write("src/data/raw/" + std::to_string(i), "");
  write("src/main.py", "");
  const auto never = [](const std::string& name) { ADD_FAILURE() << name; };
  const auto result = scan(folder(), {.limits = {.entries_max = 11}, .on_file = never});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(),
            "the folder has more than 11 files, folders and links, the most that is sent; "
            "the largest folder is 'src/data/raw' with 9");
  EXPECT_EQ(result.error().remedy(),
            "list what the job does not need in .tuttiignore, such as '/src/data/raw/'");
  EXPECT_EQ(result.error().code(), ErrorCode::invalid);
  EXPECT_TRUE(scan(folder(), {.limits = {.entries_max = 12}}));
}

TEST_F(Scan, AFolderFarAboveTheLimitIsNotWalkedToItsEnd) {
  for (int i = 0; i < 40; ++i) write(std::to_string(i), "");
  const auto result = scan(folder(), {.limits = {.entries_max = 1}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(),
            "the folder has more than 1 files, folders and links, the most that is sent");
}

TEST_F(Scan, TooManyBytesAreRefusedAndTheLargestFolderIsNamed) {
  write("code", std::string(400, 'c'));
  write("data/a", std::string(300, 'a'));
  write("data/b", std::string(300, 'b'));
  write("models/m", std::string(500, 'm'));
  const auto result = scan(folder(), {.limits = {.bytes_max = Bytes(1024)}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(),
            "the folder holds 1.46 KiB, and at most 1 KiB are sent; the largest folder is 'data' with 600 B");
  write(".tuttiignore", "/data/\n");
  EXPECT_TRUE(scan(folder(), {.limits = {.bytes_max = Bytes(1024)}}));
}

TEST_F(Scan, TheLimitCountsWhatAFileClaimsNotWhatItTakesOnDisk) {
  write("a", "");
  write("b", "");
  std::filesystem::resize_file(path("a"), static_cast<std::uintmax_t>(gib(12).count()));
  std::filesystem::resize_file(path("b"), static_cast<std::uintmax_t>(gib(12).count()));
  EXPECT_FALSE(scan(folder()));
}

TEST_F(Scan, TooMuchNamingIsRefused) {
  write("a", "");
  EXPECT_FALSE(scan(folder(), {.limits = {.encoded_bytes_max = Bytes(80)}}));
}

TEST_F(Scan, WhatIsNoFolderIsRefused) {
  write("file", "");
  EXPECT_FALSE(scan(path("absent")));
  ASSERT_FALSE(scan(path("file")));
  EXPECT_EQ(scan(path("file")).error().message(), "it is not a folder");
}

}  // namespace
}  // namespace tutti::sync
