#include "learn/train/check.hpp"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

TEST(Check, TheArithmeticAgreesWithLibtorch) {
  std::string report;
  const auto done = check([&](const std::string& line) { report += line + "\n"; });
  EXPECT_TRUE(done.ok()) << report << (done.ok() ? "" : done.error().text());
  EXPECT_NE(report.find("attention"), std::string::npos) << report;
}

}  // namespace
}  // namespace tutti::train
