#include "cli/run_folder.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/files/files.hpp"
#include "learn/checkpoint/folder.hpp"

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

// Whoever takes the folder has to have known from whom.
TEST(Submission, TellsWhoHadClaimedTheRunWhenItWasSubmitted) {
  char run[] = "/tmp/tutti-run-XXXXXX";
  ASSERT_NE(::mkdtemp(run), nullptr);
  recipe::Submission submission{.recipe = {}, .config = "{}"};
  submission.recipe.run = run;
  const auto claim_in = [&] {
    const auto path = write_submission(submission);
    EXPECT_TRUE(path.ok()) << path.error().text();
    const auto text = files::read_existing_file(*path, 1U << 20U);
    const auto parsed = recipe::parse_submission(*text);
    EXPECT_TRUE(parsed.ok()) << parsed.error().text();
    return parsed->claim;
  };
  EXPECT_EQ(claim_in(), "");
  ASSERT_TRUE(checkpoint::claim(std::string(run) + "/checkpoints", {2, 13, "east"}).ok());
  EXPECT_EQ(claim_in(), "2 13 east");
  std::filesystem::remove_all(run);
}

}  // namespace
}  // namespace tutti::cli
