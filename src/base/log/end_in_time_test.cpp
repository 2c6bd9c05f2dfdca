#include "base/log/end_in_time.hpp"

#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(EndInTimeDeathTest, WhoDoesNotEndByHimselfIsEnded) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const EndInTime end("agent", 10ms);
        end.begin();
        for (;;) ::pause();
      },
      testing::ExitedWithCode(0), "a disk does not answer: this agent ends without waiting for it");
}

TEST(EndInTimeDeathTest, WhoEndsByHimselfIsLeftAlone) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        {
          const EndInTime end("agent", 1h);
          end.begin();
        }
        std::exit(3);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace tutti
