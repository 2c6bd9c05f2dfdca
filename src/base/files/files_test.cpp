#include "base/files/files.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/names.hpp"
#include "base/units.hpp"

namespace tutti::files {
namespace {

using Names = std::vector<std::string>;

class Files : public testing::Test {
 protected:
  Files() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-files-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~Files() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  std::string content_of(const std::string& name) const {
    std::ostringstream content;
    content << std::ifstream(path(name), std::ios::binary).rdbuf();
    return content.str();
  }

  std::string folder_;
};

FileDescriptor open_to_write(const std::string& path) {
  return FileDescriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

TEST_F(Files, AreReadUpToTheirBound) {
  for (const std::size_t size : {0U, 1U, 16383U, 16384U, 16385U, 100'000U}) {
    const std::string content(size, 'x');
    const std::string file = write("file", content);
    EXPECT_EQ(**read_file(file, size), content) << size;
    EXPECT_EQ(*read_existing_file(file, size + 1), content) << size;
    if (size == 0) continue;
    const auto refused = read_file(file, size - 1);
    ASSERT_FALSE(refused) << size;
    EXPECT_EQ(refused.error().text(), "cannot read " + file + ": it is larger than " +
                                          format_bytes(Bytes(static_cast<std::int64_t>(size) - 1)));
  }
}

TEST_F(Files, OneThatIsNotThereIsNothingOrAnError) {
  write("file", "");
  for (const std::string& missing : {path("missing"), path("file/below"), path("no/folder")}) {
    const auto content = read_file(missing, 10);
    ASSERT_TRUE(content) << content.error().text();
    EXPECT_FALSE(*content);
    EXPECT_EQ(read_existing_file(missing, 10).error().text(),
              "cannot read " + missing + ": No such file or directory");
  }
}

TEST_F(Files, APipeAndADeviceNeitherBlockNorFlood) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", path("link"));
  for (const std::string& odd : {path("pipe"), path("link"), std::string("/dev/zero"), folder_}) {
    const auto refused = read_file(odd, 10);
    ASSERT_FALSE(refused) << odd;
    EXPECT_EQ(refused.error().text(), "cannot read " + odd + ": it is no file");
  }
}

TEST_F(Files, OfTheKernelAreWholeThoughTheyHaveNoSize) {
  const auto status = read_file("/proc/self/status", 65536);
  ASSERT_TRUE(status && *status);
  EXPECT_TRUE((*status)->starts_with("Name:"));
  EXPECT_FALSE(read_file("/proc/self/status", 10));
}

TEST_F(Files, AreWrittenInPlacesAndReadBack) {
  const FileDescriptor file(open(path("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(write_all(file.get(), as_bytes("0123456789"), "file"));
  ASSERT_TRUE(write_at(file.get(), 8, as_bytes("abcd"), "file"));
  ASSERT_TRUE(sync_file(file.get(), "file"));
  EXPECT_EQ(content_of("file"), "01234567abcd");
  std::string part(4, '\0');
  ASSERT_TRUE(read_at(file.get(), 6, std::as_writable_bytes(std::span(part)), "file"));
  EXPECT_EQ(part, "67ab");
  EXPECT_EQ(read_at(file.get(), 9, std::as_writable_bytes(std::span(part)), "it").error().text(),
            "cannot read it: it ends early");
}

TEST_F(Files, AFullDeviceIsSaidWithWhatToDo) {
  const auto full = open_to_write("/dev/full");
  for (const auto& written :
       {write_all(full.get(), as_bytes("x"), "it"), write_at(full.get(), 0, as_bytes("x"), "it")}) {
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().text(), "cannot write it: No space left on device");
    EXPECT_EQ(written.error().remedy(), "make room there, or write to another disk");
  }
}

TEST_F(Files, AreReplacedWhole) {
  for (const bool durable : {false, true}) {
    ASSERT_TRUE(replace_file(path("file"), "old", {.mode = 0600, .durable = durable}));
    ASSERT_TRUE(replace_file(path("file"), "new", {.mode = 0600, .durable = durable}));
    EXPECT_EQ(content_of("file"), "new");
    struct stat status {};
    ASSERT_EQ(stat(path("file").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    EXPECT_EQ(**list_folder(folder_), Names{"file"});
  }
  std::filesystem::create_directory(path("folder"));
  EXPECT_FALSE(replace_file(path("folder"), "x")) << "a folder is not replaced by a file";
  EXPECT_FALSE(replace_file(path("no/file"), "x"));
  EXPECT_EQ(**list_folder(folder_), (Names{"file", "folder"})) << "nothing is left beside it";
}

TEST_F(Files, ATrapInTheWayOfAReplacementIsRemoved) {
  ASSERT_EQ(mkfifo(path("file.new").c_str(), 0600), 0);
  ASSERT_TRUE(replace_file(path("file"), "content")) << "a pipe would have kept it waiting";
  EXPECT_EQ(content_of("file"), "content");
  write("other", "kept");
  std::filesystem::create_symlink(path("other"), path("file.new"));
  ASSERT_TRUE(replace_file(path("file"), "again"));
  EXPECT_EQ(content_of("other"), "kept");
}

TEST_F(Files, PlainFilesAreNoLinksAndNoPipes) {
  write("file", "text");
  EXPECT_EQ(**read_plain_file(path("file"), 100), "text");
  EXPECT_FALSE(*read_plain_file(path("missing"), 100));
  std::filesystem::create_symlink(path("file"), path("link"));
  EXPECT_EQ(**read_file(path("link"), 100), "text");
  EXPECT_FALSE(read_plain_file(path("link"), 100));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(read_plain_file(path("pipe"), 100));
}

TEST_F(Files, AFullDiskLeavesTheOldContent) {
  const std::string disk = path("disk");
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "only root can make a small disk";
  const auto first = replace_file(disk + "/file", "old");
  const auto second = replace_file(disk + "/file", std::string(2 << 20, 'x'));
  const auto left = list_folder(disk);
  const std::string content = content_of("disk/file");
  ASSERT_EQ(umount(disk.c_str()), 0);
  EXPECT_TRUE(first);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().text(), "cannot write " + disk + "/file.new: No space left on device");
  EXPECT_EQ(**left, Names{"file"});
  EXPECT_EQ(content, "old");
}

TEST_F(Files, ANewOneTakesNobodysPlace) {
  ASSERT_TRUE(write_new_file(path("file"), "first"));
  EXPECT_EQ(write_new_file(path("file"), "second").error().text(),
            "cannot write " + path("file") + ": File exists");
  EXPECT_EQ(content_of("file"), "first");
}

TEST_F(Files, FoldersAreMadeListedAndRemoved) {
  EXPECT_FALSE(*list_folder(path("a")));
  ASSERT_TRUE(make_folders(path("a/b/c")));
  ASSERT_TRUE(make_folder(path("a"), 0700)) << "it is there";
  ASSERT_TRUE(make_folder(path("a/d"), 0700));
  EXPECT_FALSE(make_folder(path("x/y"), 0700));
  write("a/.hidden", "");
  EXPECT_EQ(**list_folder(path("a")), (Names{".hidden", "b", "d"}));
  EXPECT_FALSE(list_folder(path("a/.hidden"))) << "a file has no names in it";
  EXPECT_TRUE(sync_folder(path("a")));
  EXPECT_FALSE(sync_folder(path("missing")));
}

TEST_F(Files, ARemovedFolderTakesWhatItHoldsAndNothingThatItLinksTo) {
  ASSERT_TRUE(make_folders(path("a/b")));
  ASSERT_TRUE(make_folders(path("kept")));
  write("kept/file", "");
  std::filesystem::create_symlink(path("kept"), path("a/b/link"));
  ASSERT_TRUE(remove_folder(path("a")));
  ASSERT_TRUE(remove_folder(path("a"))) << "one that is not there is fine";
  EXPECT_EQ(**list_folder(folder_), Names{"kept"});
  EXPECT_EQ(**list_folder(path("kept")), Names{"file"});
}

TEST_F(Files, WhatIsMountedInARemovedFolderIsLeftAlone) {
  ASSERT_TRUE(make_folders(path("mine/data")));
  ASSERT_TRUE(make_folders(path("precious")));
  write("precious/file", "kept");
  if (mount(path("precious").c_str(), path("mine/data").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "only root can mount";
  EXPECT_FALSE(remove_folder(path("mine")));
  ASSERT_EQ(umount(path("mine/data").c_str()), 0);
  EXPECT_EQ(**read_file(path("precious/file"), 100), "kept");
  EXPECT_TRUE(remove_folder(path("mine")));
}

TEST(FileNames, ShowNoControlBytesAndEnd) {
  EXPECT_EQ(printable("a\x1b[2J\n\x7f"), "a?[2J??");
  EXPECT_EQ(shown("ä b"), "'ä b'");
  EXPECT_EQ(shown(std::string(500, 'x')), "'" + std::string(400, 'x') + "…'");
}

}  // namespace
}  // namespace tutti::files
