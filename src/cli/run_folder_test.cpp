#include "cli/run_folder.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

// The job may have been accepted, and its ranks read the file.
TEST(Submission, OfASubmitThatMayHaveBeenDoneStays) {
  char path[] = "/tmp/tutti-submission-XXXXXX";
  const int file = ::mkstemp(path);
  ASSERT_GE(file, 0);
  ::close(file);
  drop_submission(path, unknown("it is not known whether the job was accepted"));
  EXPECT_TRUE(std::filesystem::exists(path));
  drop_submission(path, invalid("there is no such queue"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tutti::cli
