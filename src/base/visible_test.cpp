#include "base/visible.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Visible, WhatATerminalWouldObeyIsShown) {
  EXPECT_EQ(visible("\x1b]0;owned\x07 and \x1b[2J"), "\\x1b]0;owned\\x07 and \\x1b[2J");
  EXPECT_EQ(visible("a\rb\bc\x7f"), "a\\x0db\\x08c\\x7f");
  EXPECT_EQ(visible("\xC2\x9B"
                    "2J"),
            "\\u009b2J");
  EXPECT_EQ(visible("\xE2\x80\xAEtxt.exe"), "\\u202etxt.exe");
  EXPECT_EQ(visible(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Visible, TextStaysAsItIs) {
  const std::string text = "Zürich 東京 🚀 \\x1b\n\tand more";
  EXPECT_EQ(visible(text), text);
  EXPECT_EQ(visible(visible("\x1b[31m")), visible("\x1b[31m"));
}

TEST(Visible, BytesThatAreNoTextAreShown) { EXPECT_EQ(visible("a\xff\xc3"), "a\\xff\\xc3"); }

TEST(Visible, ALineHasNoEndInside) {
  EXPECT_EQ(visible_line("a\nb\tc"), "a\\x0ab\\x09c");
  EXPECT_FALSE(is_visible_line("a\nb"));
  EXPECT_FALSE(is_visible_line("\x1b[1m"));
  EXPECT_TRUE(is_visible_line("größer als 1"));
}

TEST(Visible, LogsKeepTheirColoursAndNothingElse) {
  EXPECT_EQ(visible_log("\x1b[1;31mred\x1b[0m 50%\r\n"), "\x1b[1;31mred\x1b[0m 50%\r\n");
  EXPECT_EQ(visible_log("\x1b[m\x1b[38:5:1m"), "\x1b[m\x1b[38:5:1m");
  EXPECT_EQ(visible_log("\x1b[2J\x1b[31"), "\\x1b[2J\\x1b[31");
  EXPECT_EQ(visible_log("\x1b]52;c;ZWNobw==\x07"), "\\x1b]52;c;ZWNobw==\\x07");
  EXPECT_EQ(visible_log("\x1b[" + std::string(200, '1') + "m").substr(0, 5), "\\x1b[");
}

}  // namespace
}  // namespace tutti
