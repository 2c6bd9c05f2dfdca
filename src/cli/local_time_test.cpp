#include "cli/local_time.hpp"

#include <cstdlib>
#include <ctime>

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

// Nine hours ahead of UTC, as in Tokyo.
struct LocalTime : testing::Test {
  void SetUp() override {
    ::setenv("TZ", "JST-9", 1);
    ::tzset();
  }
  void TearDown() override {
    ::unsetenv("TZ");
    ::tzset();
  }
};

TEST_F(LocalTime, PeopleSeeTheClockOnTheirWall) {
  EXPECT_EQ(local_date_time("2026-11-15T16:20:05.250Z"), "2026-11-16 01:20:05");
  EXPECT_EQ(local_time("2001-11-15T16:20:05.250Z"), "11-16 01:20");
  EXPECT_EQ(with_local_times("waits until 2001-11-15T16:20:05.250Z, or longer"),
            "waits until 11-16 01:20, or longer");
  const std::string now = format_instant(Instant(std::chrono::seconds(std::time(nullptr))));
  EXPECT_EQ(local_time(now).size(), 5U) << "today needs no date";
}

TEST_F(LocalTime, WhatIsNoInstantStaysAsItIs) {
  EXPECT_EQ(local_date_time("soon"), "soon");
  EXPECT_EQ(local_time(""), "");
  EXPECT_FALSE(parse_instant("2026-11-15 16:20:05"));
}

TEST_F(LocalTime, InstantsAreReadAsTheyWereWritten) {
  const Instant then(1'763'223'605'250ms);
  EXPECT_EQ(parse_instant(format_instant(then)), then);
}

}  // namespace
}  // namespace tutti::cli
