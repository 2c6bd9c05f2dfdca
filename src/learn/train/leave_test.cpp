#include "learn/train/leave.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/exit_codes.hpp"

namespace tutti::train {
namespace {

// As a rank does that waits for what never comes.
void fail_and_wait(const Error& error) {
  leave_after(std::chrono::milliseconds(50), error);
  for (;;) pause();
}

TEST(Leave, ARankThatHasFailedEndsWhateverItWaitsFor) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(fail_and_wait(failed("the disk is full")), testing::ExitedWithCode(1), "the disk is full");
  EXPECT_EXIT(fail_and_wait(invalid("it diverges")), testing::ExitedWithCode(exit_final), "it diverges");
  EXPECT_EQ(exit_code_of(Error(ErrorCode::unknown, "no room for the last checkpoint")), exit_later);
}

TEST(Leave, ARankThatIsDoneEndsWhateverItWaitsFor) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto wait_when_done = [] {
    leave_after(std::chrono::milliseconds(50), 0, "all of it is saved");
    for (;;) pause();
  };
  EXPECT_EXIT(wait_when_done(), testing::ExitedWithCode(0), "all of it is saved");
}

}  // namespace
}  // namespace tutti::train
