#include "cli/job_reading.hpp"

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

TEST(JobReading, AReasonInARowEndsBeforeTheLinesOfTheLog) {
  const auto shown = [](const std::string& reason) { return reason_in_a_row(reason); };
  EXPECT_EQ(shown("rank 0 on node a exited with 3; last lines of its log:\nKeyError: 'x'\n"),
            "rank 0 on node a exited with 3");
  EXPECT_EQ(shown("rank 0 on node a exited with 1; rank 2 hangs; last lines of its log:\n: ; x"),
            "rank 0 on node a exited with 1; rank 2 hangs");
  EXPECT_EQ(shown("waits for GPUs; two are free"), "waits for GPUs; two are free");
  EXPECT_EQ(shown("one\ntwo"), "one");
  EXPECT_EQ(shown("cannot run 'a; b:'"), "cannot run 'a; b:'");
  EXPECT_EQ(shown(""), "");
}

}  // namespace
}  // namespace tutti::cli
