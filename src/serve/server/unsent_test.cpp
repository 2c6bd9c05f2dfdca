#include "serve/server/unsent.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::serve {
namespace {

struct Holder {
  Holder(Unsent& unsent, const std::string& address)
      : share(unsent, address, [this] { was_let_go = true; }) {}
  bool was_let_go = false;
  Unsent::Share share;
};

TEST(Unsent, WhoHoldsMostOfAnAddressMakesRoomForItsOthers) {
  Unsent unsent(100);
  Holder slow(unsent, "a");
  Holder slower(unsent, "a");
  Holder quick(unsent, "a");
  EXPECT_TRUE(slow.share.hold(30));
  EXPECT_TRUE(slower.share.hold(40));
  EXPECT_TRUE(quick.share.hold(30));
  EXPECT_TRUE(slower.was_let_go);
  EXPECT_FALSE(slow.was_let_go);
  EXPECT_EQ(unsent.bytes(), 60U) << "what it held is free";
  EXPECT_FALSE(slower.share.hold(1)) << "it is not let in again";
  quick.share.release();
  EXPECT_TRUE(quick.share.hold(20)) << "who has sent what it had may go on";
}

TEST(Unsent, NobodyMakesRoomForAnotherAddressWhichFindsSome) {
  Unsent unsent(100);
  Holder greedy(unsent, "a");
  while (!greedy.was_let_go && greedy.share.bytes() < 75) greedy.share.hold(5);
  EXPECT_EQ(greedy.share.bytes(), 75U);
  Holder other(unsent, "b");
  EXPECT_TRUE(other.share.hold(20));
  EXPECT_FALSE(greedy.was_let_go);
  EXPECT_FALSE(greedy.share.hold(5)) << "it would have more than three times what is left";
  EXPECT_TRUE(greedy.was_let_go);
  EXPECT_EQ(unsent.bytes(), 20U);
}

TEST(Unsent, WhoWantsMoreThanThereIsIsLetGoItself) {
  Unsent unsent(100);
  Holder small(unsent, "a");
  EXPECT_TRUE(small.share.hold(10));
  {
    Holder large(unsent, "a");
    EXPECT_FALSE(large.share.hold(200));
    EXPECT_TRUE(large.was_let_go);
    Holder next(unsent, "a");
    EXPECT_TRUE(next.share.hold(10));
  }
  EXPECT_FALSE(small.was_let_go);
  EXPECT_EQ(unsent.bytes(), 10U) << "who has gone holds nothing";
}

}  // namespace
}  // namespace tutti::serve
