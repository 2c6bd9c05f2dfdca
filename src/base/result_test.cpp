#include "base/result.hpp"

#include <cerrno>
#include <memory>

#include <gtest/gtest.h>

namespace tutti {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return invalid("odd").remedy("take an even number");
  return number / 2;
}

TEST(Result, HoldsAValue) {
  const auto result = half(8);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, 4);
  EXPECT_EQ(result.value(), 4);
}

TEST(Result, HoldsAnError) {
  const auto result = half(7);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::invalid);
  EXPECT_EQ(result.error().message(), "odd");
  EXPECT_EQ(result.error().remedy(), "take an even number");
  EXPECT_EQ(half(7).value_or(-1), -1);
  EXPECT_EQ(half(6).value_or(-1), 3);
}

TEST(Result, MovesOutWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(Result, VoidIsFineByDefault) {
  EXPECT_TRUE(Result<>().ok());
  EXPECT_FALSE(Result<>(failed("disk full")).ok());
}

TEST(Error, ContextGrowsOutwards) {
  const Error error = failed("No space left").within("writing job 7").within("submitting");
  EXPECT_EQ(error.context(), "submitting: writing job 7");
  EXPECT_EQ(error.text(), "submitting: writing job 7 : No space left");
  EXPECT_EQ(failed("alone").text(), "alone");
}

TEST(Error, TheInnermostRemedyStays) {
  EXPECT_EQ(failed("x").remedy("precise").remedy("vague").remedy(), "precise");
}

TEST(Error, NamesErrno) {
  EXPECT_EQ(failed_errno("cannot open a.txt", ENOENT).message(),
            "cannot open a.txt: No such file or directory");
}

TEST(ResultDeathTest, ReadingTheWrongSideIsABug) {
  EXPECT_DEATH(static_cast<void>(half(7).value()), "value\\(\\) of a failed result");
  EXPECT_DEATH(static_cast<void>(half(8).error()), "error\\(\\) of a result that is fine");
}

}  // namespace
}  // namespace tutti
