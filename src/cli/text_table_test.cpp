#include "cli/text_table.hpp"

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

TEST(TextTable, ColumnsAreAsWideAsTheirLetters) {
  TextTable table({"NAME", "REASON"});
  table.add({"naïve", "one"});
  table.add({"b", "two"});
  EXPECT_EQ(table.text(), "NAME   REASON\nnaïve  one\nb      two\n");
}

TEST(TextTable, TheLastCellIsCutWhereTheTerminalEnds) {
  TextTable table({"NAME", "REASON"});
  table.add({"a", "twenty-five letters, äöü!!"});
  EXPECT_EQ(table.text(30), "NAME  REASON\na     twenty-five letters, ...\n");
  EXPECT_EQ(table.text(32), "NAME  REASON\na     twenty-five letters, äöü!!\n");
  EXPECT_EQ(table.text(10), "NAME  REASON\na     twenty-five lette...\n")
      << "some of it stays on a narrow one";
  EXPECT_EQ(table.text(), table.text(32)) << "what goes to no terminal is whole";
}

}  // namespace
}  // namespace tutti::cli
