// Files of the audit log: what is in them after a crash, and what is read of them.
#include "control/audit/shelf.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::audit {
namespace {

namespace fs = std::filesystem;

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

TEST_F(ShelfTest, OfManyFilesOnlyThoseAreReadInWhichSomethingMayBe) {
  Shelf shelf = open();
  const std::string what(900, 'x');
  for (int part = 0; part < 3; ++part) ASSERT_TRUE(shelf.append(more(10'000, "ada", what)).ok());
  ASSERT_GE(files().size(), 3U);
  std::ofstream(files().front()) << "no log";
  Query query{.since = format_instant(Instant(1'800'000'000s) + 25'000 * 60s), .lines_max = 1'000'000};
  Page some = page(query);
  while (some.lines.empty() && some.next != 0) {
    query.after = some.next;  // one page is not enough to find it
    some = page(query);
  }
  ASSERT_FALSE(some.lines.empty());
  EXPECT_EQ(cluster::audit_head_of(some.lines.front())->last, 25'000U);
}

TEST_F(ShelfTest, WithoutAFolderThereIsNothing) {
  EXPECT_TRUE(page({}).lines.empty());
  EXPECT_EQ(shelf_bytes(folder), Bytes(0));
}

}  // namespace
}  // namespace tutti::audit
