// The chain: what breaks it, and where it is said to be broken.
#include "control/audit/line.hpp"

#include <gtest/gtest.h>

namespace tutti::audit {
namespace {

struct ChainTest : testing::Test {
  std::string add(const std::string& who, const std::string& after = "") {
    lines.push_back(next_line(
        {.at = Instant(1'800'000'000s), .who = who, .verb = "set", .object = "x", .after = after}, head));
    return lines.back();
  }
  // "" if all follow one another.
  std::string broken() const {
    Head before;
    for (const std::string& line : lines) {
      auto next = check_line(line, before);
      if (!next) return next.error().text();
      before = *next;
    }
    return "";
  }

  Head head;
  std::vector<std::string> lines;
};

TEST_F(ChainTest, LinesFollowOneAnother) {
  for (int at = 0; at < 5; ++at) add("ada");
  EXPECT_EQ(head.last, 5U);
  EXPECT_EQ(head.hash.size(), 64U);
  EXPECT_EQ(broken(), "");
  EXPECT_EQ(cluster::audit_head_of_lines(lines[3] + lines[4]), head);
}

TEST_F(ChainTest, AnyByteThatChangesIsSeen) {
  add("ada", "a \"quote\"\n and a line");
  add("bob");
  const std::vector<std::string> whole = lines;
  for (std::size_t at = 0; at + 1 < whole[0].size(); ++at) {
    lines = whole;
    lines[0][at] = static_cast<char>(lines[0][at] == '0' ? '1' : '0');
    EXPECT_NE(broken(), "") << at;
  }
}

TEST_F(ChainTest, WhatIsRemovedPutInBetweenOrMovedIsNamed) {
  for (int at = 0; at < 4; ++at) add("ada");
  const std::vector<std::string> whole = lines;
  lines.erase(lines.begin() + 1);
  EXPECT_NE(broken().find("line 3 follows line 1"), std::string::npos) << broken();
  lines = whole;
  std::swap(lines[1], lines[2]);
  EXPECT_NE(broken(), "");
  // One that was made anew with a hash that is right does not follow what stood there.
  lines = whole;
  Head other{1, head.hash};
  lines[1] = next_line({.at = Instant(1s), .who = "eve"}, other);
  EXPECT_NE(broken().find("line 2 does not follow"), std::string::npos) << broken();
}

TEST_F(ChainTest, WhatSomebodyWroteStaysInItsLine) {
  const std::string line = add(std::string("a\nb\x1b[2J\"},{\xff", 12), std::string(10'000, 'x'));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_LT(line.size(), 2'000U) << "long ones are cut";
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(broken(), "");
  const auto label = label_of(line);
  ASSERT_TRUE(label);
  EXPECT_EQ(label->at, "2027-01-15T08:00:00.000Z");
  EXPECT_EQ(label->who.substr(0, 6), "a\\x0ab");
}

TEST(AuditLines, WhatIsNoneIsNone) {
  for (const char* text :
       {"", "{}", "{\"n\":1}", "{\"n\":x,\"hash\":\"\"}", "\n", "{\"n\":0,\"hash\":\"0\"}"})
    EXPECT_FALSE(check_line(text, std::nullopt).ok()) << text;
  EXPECT_FALSE(label_of("{\"n\":1}"));
  EXPECT_FALSE(label_of("[1]"));
}

}  // namespace
}  // namespace tutti::audit
