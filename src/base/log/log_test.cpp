#include "base/log/log.hpp"

#include <gtest/gtest.h>

namespace tutti::log {
namespace {

class Log : public testing::Test {
 protected:
  void TearDown() override { setup({}); }

  static std::string captured(const auto& action) {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, IsQuietByDefault) {
  const auto text = captured([] {
    debug("a detail");
    info("node {} joined", "n1");
    warning("disk {}% full", 93);
  });
  EXPECT_EQ(text.find("joined"), std::string::npos);
  EXPECT_NE(text.find("warning tutti: disk 93% full\n"), std::string::npos) << text;
}

TEST_F(Log, LevelOpensAndClosesIt) {
  setup({.level = Level::debug, .part = "agent"});
  EXPECT_NE(captured([] { debug("a detail"); }).find("debug agent: a detail"), std::string::npos);
  setup({.level = Level::off});
  EXPECT_EQ(captured([] { error("lost"); }), "");
}

TEST_F(Log, WhatATerminalWouldObeyIsShown) {
  setup({.level = Level::info, .part = "agent"});
  const auto line = captured([] { info("node {} joined", "n1\x1b[2J\nn2"); });
  EXPECT_NE(line.find("node n1\\x1b[2J\\x0an2 joined\n"), std::string::npos) << line;
}

TEST_F(Log, JsonLinesAreEscaped) {
  setup({.level = Level::info, .json = true, .part = "controller"});
  const auto line = captured([] { info("said \"{}\"\n\\", "hi"); });
  EXPECT_EQ(line.find("{\"time\":\"20"), 0U) << line;
  EXPECT_NE(line.find(R"("level":"info","part":"controller","message":"said \"hi\"\u000a\\"})"),
            std::string::npos)
      << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one record, one line";
}

TEST_F(Log, ArgumentsAreNotFormattedWhenClosed) {
  setup({.level = Level::error});
  EXPECT_FALSE(enabled(Level::info));
  EXPECT_TRUE(enabled(Level::error));
  EXPECT_FALSE(enabled(Level::off));
}

TEST_F(Log, ParsesLevels) {
  EXPECT_EQ(*parse_level("debug"), Level::debug);
  EXPECT_EQ(*parse_level("off"), Level::off);
  EXPECT_FALSE(parse_level("loud").ok());
  EXPECT_FALSE(parse_level("").ok());
}

}  // namespace
}  // namespace tutti::log
