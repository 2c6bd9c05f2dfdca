// Files of the audit log: what is in them after a crash, and what is read of them.
#include "control/audit/shelf.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace tutti::audit {
namespace {

namespace fs = std::filesystem;

// In memory, and gone with its object.
struct SmallDisk {
  explicit SmallDisk(const std::string& path) : folder(path) {
    fs::create_directories(folder);
    mounted = ::mount("none", folder.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted) ::umount2(folder.c_str(), MNT_DETACH);
  }

  std::string folder;
  bool mounted = false;
};

struct ShelfTest : testing::Test {
  ShelfTest() : folder(testing::TempDir() + "tutti-shelf-" + std::to_string(::getpid())) {
    fs::remove_all(folder);
  }
  ~ShelfTest() override { fs::remove_all(folder); }

  // So many more lines, one a minute.
  std::string more(int count, const std::string& who = "ada", const std::string& what = "") {
    std::string lines;
    for (int at = 0; at < count; ++at)
      lines += next_line({.at = Instant(1'800'000'000s) + (now += 60s), .who = who, .what = what}, head);
    return lines;
  }
  Shelf open() const {
    auto shelf = Shelf::open(folder);
    EXPECT_TRUE(shelf.ok()) << shelf.error().text();
    return *std::move(shelf);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    return names;
  }
  Page page(const Query& query, std::string_view newest = "") const {
    auto read = read_page(folder, newest, query);
    EXPECT_TRUE(read.ok());
    return *std::move(read);
  }

  std::string folder;
  Head head;
  Duration now{};
};

TEST_F(ShelfTest, GoesOnWhereItWasAndWritesNothingTwice) {
  const std::string first = more(3);
  const std::string second = more(2);
  {
    Shelf shelf = open();
    EXPECT_EQ(shelf.head(), Head());
    ASSERT_TRUE(shelf.append(first).ok());
  }
  Shelf shelf = open();
  EXPECT_EQ(shelf.head().last, 3U);
  ASSERT_TRUE(shelf.append(first + second).ok());
  ASSERT_TRUE(shelf.append(first + second).ok());
  EXPECT_EQ(shelf.head(), head);
  EXPECT_EQ(page({}).lines.size(), 5U);
  struct stat found {};
  ASSERT_EQ(::stat(files().front().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat(folder.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700U);
}

TEST_F(ShelfTest, HalfALineOfAPowerCutIsPutAside) {
  ASSERT_TRUE(open().append(more(2)).ok());
  const std::string path = files().front();
  const auto whole = fs::file_size(path);
  for (const std::string& torn :
       {std::string("{\"n\":3,\"at\""), std::string(100, '\0'), std::string("\n\n")}) {
    std::ofstream(path, std::ios::app) << torn;
    Shelf shelf = open();
    EXPECT_EQ(shelf.head(), head);
    EXPECT_EQ(fs::file_size(path), whole);
    EXPECT_EQ(fs::file_size(path + ".torn"), torn.size()) << "nothing is thrown away";
  }
  ASSERT_TRUE(open().append(more(1)).ok());
  EXPECT_EQ(page({}).lines.size(), 3U);
}

// Nothing can be put aside there: the lines that are whole are known all the same, and what comes follows
// them.
TEST_F(ShelfTest, HalfALineOnAFullDiskStaysWhereItIs) {
  const SmallDisk disk(folder);
  if (!disk.mounted) GTEST_SKIP() << "needs the right to mount";
  ASSERT_TRUE(open().append(more(2)).ok());
  const std::string path = files().front();
  std::ofstream(path, std::ios::app) << "{\"n\":3,\"at\"";
  const auto torn = fs::file_size(path);
  const std::string filler = folder + "/filler";
  std::ofstream(filler) << std::string(128 << 10, 'x');
  {
    Shelf shelf = open();
    EXPECT_EQ(shelf.head(), head);
    EXPECT_NE(shelf.take_amiss(), "");
    EXPECT_EQ(fs::file_size(path), torn);
    fs::remove(filler);
    ASSERT_TRUE(shelf.append(more(1)).ok());
  }
  EXPECT_EQ(page({}).lines.size(), 3U);
  EXPECT_EQ(open().head(), head);
}

// What was changed is shown as it is: to judge it is for whoever verifies.
TEST_F(ShelfTest, AChangedLineStays) {
  ASSERT_TRUE(open().append(more(3)).ok());
  const std::string path = files().front();
  std::fstream file(path);
  file.seekp(30);
  file << "X";
  file.close();
  EXPECT_EQ(open().head(), head);
  EXPECT_EQ(page({}).lines.size(), 3U);
  EXPECT_FALSE(fs::exists(path + ".torn"));
}

TEST_F(ShelfTest, WhatIsFullIsFollowedByAnotherAndTheOldestGo) {
  Shelf shelf = open();
  const std::string what(900, 'x');
  while (shelf_bytes(folder) < file_bytes_max * 2) ASSERT_TRUE(shelf.append(more(1'000, "ada", what)).ok());
  ASSERT_GE(files().size(), 2U);
  ASSERT_TRUE(shelf.append(more(10'000, "ada", what)).ok());
  ASSERT_TRUE(shelf.append(more(1)).ok());
  const auto all = files();
  ASSERT_GE(all.size(), 3U);
  ASSERT_TRUE(shelf.trim(Bytes(0), Instant()).ok());
  EXPECT_EQ(files(), all) << "without bounds";
  ASSERT_TRUE(shelf.trim(shelf_bytes(folder) - Bytes(1), Instant()).ok());
  EXPECT_EQ(files(), std::vector(all.begin() + 1, all.end()));
  ASSERT_TRUE(shelf.trim(Bytes(0), Instant(1'800'000'000s) + now + 1h).ok());
  EXPECT_EQ(files(), std::vector(all.end() - 1, all.end())) << "the newest stays";
  EXPECT_EQ(open().head(), head);
}

TEST_F(ShelfTest, APageGoesOnBehindTheOneBeforeAlsoInTheStore) {
  const std::string shelved = more(5);
  const std::string waiting = more(4, "bob");
  ASSERT_TRUE(open().append(shelved).ok());
  // Lines that are in both are there once.
  const std::string newest = shelved.substr(shelved.rfind('\n', shelved.size() - 2) + 1) + waiting;
  std::vector<std::string> all;
  Query query{.lines_max = 2};
  for (int pages = 0; pages < 10; ++pages) {
    const Page some = page(query, newest);
    all.insert(all.end(), some.lines.begin(), some.lines.end());
    query.after = some.next;
    if (some.next == 0) break;
  }
  ASSERT_EQ(all.size(), 9U);
  Head before;
  for (const std::string& line : all) before = check_line(line, before).value_or(Head());
  EXPECT_EQ(before, head);
  EXPECT_EQ(page({.who = "bob"}, newest).lines.size(), 4U);
  EXPECT_EQ(page({.since = format_instant(Instant(1'800'000'000s) + 4 * 60s)}, newest).lines.size(), 6U);
  EXPECT_EQ(page({.since = "2027-01-15T08:0"}, newest).lines.size(), 9U) << "the beginning of a time";
  EXPECT_TRUE(page({.since = "2028"}, newest).lines.empty());
}

TEST_F(ShelfTest, OfManyFilesThoseAreNotReadThatAreOnEarlierPages) {
  Shelf shelf = open();
  const std::string what(900, 'x');
  for (int part = 0; part < 3; ++part) ASSERT_TRUE(shelf.append(more(10'000, "ada", what)).ok());
  ASSERT_GE(files().size(), 3U);
  std::ofstream(files().front()) << "no log";
  const Page some = page({.after = 24'999, .lines_max = 10});
  ASSERT_EQ(some.lines.size(), 10U);
  EXPECT_EQ(cluster::audit_head_of(some.lines.front())->last, 25'000U);
}

// A machine that starts with a wrong date writes lines of that date, between others.
TEST_F(ShelfTest, ADateThatWasWrongForAWhileHidesAndRemovesNothing) {
  Shelf shelf = open();
  const std::string what(900, 'x');
  const auto fill = [&] {
    const std::size_t before = files().size();
    while (files().size() == before) ASSERT_TRUE(shelf.append(more(1'000, "ada", what)).ok());
  };
  ASSERT_TRUE(shelf.append(more(1)).ok());
  fill();
  const Duration right = now;
  now = -1'800'000'000s;
  ASSERT_TRUE(shelf.append(more(3, "bob")).ok());
  fill();
  now = right;
  ASSERT_TRUE(shelf.append(more(1)).ok());
  const auto all = files();
  ASSERT_GE(all.size(), 3U);
  ASSERT_TRUE(shelf.trim(Bytes(0), Instant(1'800'000'000s)).ok());
  EXPECT_EQ(files(), all) << "in the first are lines of later, though the next begins before them";
  Query query{.since = format_instant(Instant(1'800'000'000s) + 60s), .lines_max = 1};
  Page some = page(query);
  ASSERT_EQ(some.lines.size(), 1U);
  EXPECT_EQ(cluster::audit_head_of(some.lines.front())->last, 1U);
}

// Somebody has put lines in between: with the number of an earlier one, or of none that can be read.
TEST_F(ShelfTest, WhatIsInBetweenIsShownOnWhateverPage) {
  const std::string lines = more(6);
  ASSERT_TRUE(open().append(lines).ok());
  std::vector<std::string> each;
  for (std::size_t begin = 0; begin < lines.size(); begin = lines.find('\n', begin) + 1)
    each.push_back(lines.substr(begin, lines.find('\n', begin) + 1 - begin));
  for (const std::string& more_of_it : {each[1], std::string("{\"n\":1\n"), std::string("garbage\n")}) {
    std::ofstream file(files().front(), std::ios::trunc);
    for (std::size_t at = 0; at < each.size(); ++at) {
      file << each[at];
      for (int times = 0; at == 2 && times < 5; ++times) file << more_of_it;
    }
    file.close();
    for (const std::size_t lines_max : {1UL, 2UL, 3UL, 4UL, 100UL}) {
      std::vector<std::string> seen;
      Query query{.lines_max = lines_max};
      for (int pages = 0; pages < 20; ++pages) {
        const Page some = page(query);
        seen.insert(seen.end(), some.lines.begin(), some.lines.end());
        query.after = some.next;
        if (some.next == 0) break;
      }
      ASSERT_EQ(query.after, 0U) << "there is no end";
      Head before;
      bool is_whole = true;
      for (const std::string& line : seen) {
        const auto checked = check_line(line, before);
        is_whole = is_whole && checked.ok();
        if (checked) before = *checked;
      }
      EXPECT_FALSE(is_whole) << more_of_it << " with pages of " << lines_max;
      EXPECT_EQ(before, head);
    }
  }
}

// By hand, or by a program that rotates logs. What is lost is lost, and what comes is not.
TEST_F(ShelfTest, AFileThatSomebodyRemovesOrCutsIsFollowedByAnother) {
  Shelf shelf = open();
  ASSERT_TRUE(shelf.append(more(3)).ok());
  EXPECT_EQ(shelf.take_amiss(), "");
  fs::remove(files().front());
  ASSERT_TRUE(shelf.append(more(2)).ok());
  EXPECT_NE(shelf.take_amiss(), "");
  EXPECT_EQ(shelf.take_amiss(), "") << "once";
  EXPECT_EQ(page({}).lines.size(), 2U);
  fs::resize_file(files().front(), 0);
  ASSERT_TRUE(shelf.append(more(2)).ok());
  EXPECT_NE(shelf.take_amiss(), "");
  EXPECT_EQ(page({}).lines.size(), 2U);
  std::ofstream(files().back(), std::ios::app) << "somebody else's";
  ASSERT_TRUE(shelf.append(more(1)).ok());
  EXPECT_NE(shelf.take_amiss(), "");
  fs::remove_all(folder);
  ASSERT_TRUE(shelf.append(more(1)).ok());
  EXPECT_EQ(page({}).lines.size(), 1U);
  EXPECT_EQ(open().head(), head);
}

TEST_F(ShelfTest, WithoutAFolderThereIsNothing) {
  EXPECT_TRUE(page({}).lines.empty());
  EXPECT_EQ(shelf_bytes(folder), Bytes(0));
}

}  // namespace
}  // namespace tutti::audit
