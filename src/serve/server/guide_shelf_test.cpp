#include "serve/server/guide_shelf.hpp"

#include <gtest/gtest.h>

namespace tutti::serve {
namespace {

class Heavy final : public Guide {
 public:
  explicit Heavy(std::size_t bytes) : bytes_taken(bytes) {}
  State start() override { return 0; }
  std::span<const std::uint64_t> allowed(State) override { return {}; }
  State next(State state, Token) override { return state; }
  bool ended(State) override { return true; }
  std::size_t bytes() const override { return bytes_taken; }

  std::size_t bytes_taken;
};

api::Form form(const std::string& text) { return {api::Form::Kind::pattern, text}; }

TEST(GuideShelf, WhoAsksForTheSameFormGetsTheSameGuide) {
  GuideShelf shelf(100);
  EXPECT_EQ(shelf.find(form("a")), nullptr);
  const auto first = std::make_shared<Heavy>(10);
  ASSERT_EQ(*shelf.keep(form("a"), first), first);
  EXPECT_EQ(shelf.find(form("a")), first);
  EXPECT_EQ(*shelf.keep(form("a"), std::make_shared<Heavy>(10)), first) << "somebody was faster";
  EXPECT_EQ(shelf.find(form("b")), nullptr);
}

TEST(GuideShelf, WhoWasNotAskedForLongestGoesFirst) {
  GuideShelf shelf(100);
  for (const char* text : {"a", "b", "c"})
    ASSERT_TRUE(shelf.keep(form(text), std::make_shared<Heavy>(30)).ok());
  ASSERT_NE(shelf.find(form("a")), nullptr);
  ASSERT_TRUE(shelf.keep(form("d"), std::make_shared<Heavy>(30)).ok());
  EXPECT_NE(shelf.find(form("a")), nullptr);
  EXPECT_EQ(shelf.find(form("b")), nullptr);
  EXPECT_LE(shelf.bytes(), 100U);
}

TEST(GuideShelf, WhatAnswersStillNeedIsCountedAndANewOneWaits) {
  GuideShelf shelf(100);
  auto needed = *shelf.keep(form("a"), std::make_shared<Heavy>(80));
  const auto refused = shelf.keep(form("b"), std::make_shared<Heavy>(30));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::failed);
  EXPECT_TRUE(shelf.keep({api::Form::Kind::any_object, ""}, std::make_shared<Heavy>(30)).ok());
  needed.reset();
  EXPECT_TRUE(shelf.keep(form("b"), std::make_shared<Heavy>(30)).ok());
}

TEST(GuideShelf, AGuideThatHasGrownMakesRoomForOthers) {
  GuideShelf shelf(100);
  auto growing = std::make_shared<Heavy>(10);
  ASSERT_TRUE(shelf.keep(form("a"), growing).ok());
  growing->bytes_taken = 95;
  growing.reset();
  ASSERT_TRUE(shelf.keep(form("b"), std::make_shared<Heavy>(10)).ok());
  EXPECT_EQ(shelf.find(form("a")), nullptr);
  EXPECT_LE(shelf.bytes(), 100U);
}

TEST(GuideShelf, ThereAreNoMoreThanSoMany) {
  GuideShelf shelf;
  for (std::size_t nth = 0; nth <= guides_kept_max; ++nth)
    ASSERT_TRUE(shelf.keep(form(std::to_string(nth)), std::make_shared<Heavy>(1)).ok());
  EXPECT_EQ(shelf.find(form("0")), nullptr);
  EXPECT_NE(shelf.find(form("1")), nullptr);
}

}  // namespace
}  // namespace tutti::serve
