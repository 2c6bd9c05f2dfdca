#include "net/sync/ignore.hpp"

#include <gtest/gtest.h>

namespace tutti::sync {
namespace {

bool file_ignored(std::string_view rules, std::string_view path) {
  return IgnoreRules(rules).ignores(path, false);
}
bool folder_ignored(std::string_view rules, std::string_view path) {
  return IgnoreRules(rules).ignores(path, true);
}

TEST(IgnoreRules, ANameMatchesAtAnyDepth) {
  EXPECT_TRUE(file_ignored("a.log", "a.log"));
  EXPECT_TRUE(file_ignored("a.log", "d/e/a.log"));
  EXPECT_FALSE(file_ignored("a.log", "xa.log"));
  EXPECT_FALSE(file_ignored("a.log", "a.log2"));
}

TEST(IgnoreRules, BlankLinesAndCommentsAreNoRules) {
  EXPECT_FALSE(file_ignored("", "a"));
  EXPECT_FALSE(file_ignored("\n  \n/\n!\n#a\n", "a"));
  EXPECT_FALSE(file_ignored("#a", "#a"));
  EXPECT_TRUE(file_ignored("\\#a", "#a"));
  EXPECT_TRUE(file_ignored("\\!a", "!a"));
}

TEST(IgnoreRules, BlanksAtTheEndOfALineAreDropped) {
  EXPECT_TRUE(file_ignored("a  \r\nb", "a"));
  EXPECT_TRUE(file_ignored("a\\ ", "a "));
  EXPECT_FALSE(file_ignored("a\\ ", "a"));
}

TEST(IgnoreRules, StarsAndQuestionMarksStayInsideAName) {
  EXPECT_TRUE(file_ignored("*.log", "d/a.log"));
  EXPECT_TRUE(file_ignored("a*b*c", "axxbxbxc"));
  EXPECT_FALSE(file_ignored("a*b*c", "axxbxbx"));
  EXPECT_TRUE(file_ignored("a?c", "abc"));
  EXPECT_FALSE(file_ignored("a?c", "ac"));
  EXPECT_FALSE(file_ignored("/a*c", "a/c"));
  EXPECT_FALSE(file_ignored("/a?c", "a/c"));
  EXPECT_TRUE(file_ignored("a\\*", "a*"));
  EXPECT_FALSE(file_ignored("a\\*", "ab"));
}

TEST(IgnoreRules, SetsOfLetters) {
  EXPECT_TRUE(file_ignored("*.py[cod]", "x.pyc"));
  EXPECT_FALSE(file_ignored("*.py[cod]", "x.py"));
  EXPECT_TRUE(file_ignored("v[0-9]", "v7"));
  EXPECT_FALSE(file_ignored("v[!0-9]", "v7"));
  EXPECT_TRUE(file_ignored("v[!0-9]", "vx"));
  EXPECT_TRUE(file_ignored("[]]", "]"));
  EXPECT_TRUE(file_ignored("[a-]", "-"));
  EXPECT_TRUE(file_ignored("[open", "[open"));
}

TEST(IgnoreRules, ASlashAnchors) {
  EXPECT_TRUE(file_ignored("/a", "a"));
  EXPECT_FALSE(file_ignored("/a", "d/a"));
  EXPECT_TRUE(file_ignored("d/a", "d/a"));
  EXPECT_FALSE(file_ignored("d/a", "x/d/a"));
}

TEST(IgnoreRules, ASlashAtTheEndMeansFoldersOnly) {
  EXPECT_TRUE(folder_ignored("build/", "build"));
  EXPECT_TRUE(folder_ignored("build/", "x/build"));
  EXPECT_FALSE(file_ignored("build/", "build"));
  EXPECT_FALSE(folder_ignored("/build/", "x/build"));
}

TEST(IgnoreRules, TwoStarsCrossFolders) {
  EXPECT_TRUE(file_ignored("**/c", "c"));
  EXPECT_TRUE(file_ignored("**/c", "a/b/c"));
  EXPECT_TRUE(file_ignored("a/**/c", "a/c"));
  EXPECT_TRUE(file_ignored("a/**/c", "a/x/y/c"));
  EXPECT_FALSE(file_ignored("a/**/c", "x/a/c"));
  EXPECT_TRUE(file_ignored("a/**", "a/b"));
  EXPECT_TRUE(file_ignored("a/**", "a/b/c"));
  EXPECT_FALSE(folder_ignored("a/**", "a"));
  EXPECT_TRUE(file_ignored("**", "a"));
}

TEST(IgnoreRules, TheLastRuleThatMatchesDecides) {
  EXPECT_FALSE(file_ignored("*.log\n!keep.log", "keep.log"));
  EXPECT_TRUE(file_ignored("*.log\n!keep.log", "other.log"));
  EXPECT_TRUE(file_ignored("!keep.log\n*.log", "keep.log"));
}

// A matcher that tries every split of the stars would not come back.
TEST(IgnoreRules, ManyStarsTakeLittleTime) {
  std::string stars;
  std::string folders;
  for (int i = 0; i < 50; ++i) {
    stars += "*a";
    folders += "**/a/";
  }
  EXPECT_FALSE(file_ignored(stars + "b", std::string(250, 'a')));
  std::string path;
  for (int i = 0; i < 500; ++i) path += "a/";
  EXPECT_FALSE(file_ignored(folders + "b", path + "c"));
}

}  // namespace
}  // namespace tutti::sync
