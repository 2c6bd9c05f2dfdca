#include "serve/batch/order.hpp"

#include <gtest/gtest.h>

#include <map>

namespace tutti::serve {
namespace {

SequenceId sequence(std::uint64_t request) { return {RequestId(request), 0}; }

void submit(Order& order, const std::string& key, std::uint64_t request, std::uint64_t step = 0) {
  order.enter(key, step);
  order.add(key, sequence(request), step);
}

TEST(Order, TheKeyThatWasChargedLeastIsNext) {
  Order order(1000);
  submit(order, "a", 1);
  submit(order, "b", 2);
  submit(order, "a", 3);
  EXPECT_EQ(order.next(0), sequence(1));  // the older one, of equals
  order.charge("a", 10, 0);
  EXPECT_EQ(order.next(0), sequence(2));
  order.charge("b", 11, 0);
  EXPECT_EQ(order.next(0), sequence(1));
  order.remove("a", sequence(1));
  EXPECT_EQ(order.next(0), sequence(3));
  EXPECT_TRUE(order.invariants().ok());
}

TEST(Order, TimeAwayIsNoCredit) {
  Order order(1000);
  submit(order, "busy", 1);
  order.charge("busy", 5000, 0);
  submit(order, "late", 2);
  order.charge("late", 1, 0);
  EXPECT_EQ(order.next(0), sequence(1)) << "who comes late begins where the others are";
}

TEST(Order, WhoComesBackKeepsItsCharges) {
  Order order(1000);
  submit(order, "small", 1);
  submit(order, "large", 2);
  order.charge("large", 5000, 0);
  order.remove("large", sequence(2));
  order.leave("large");
  submit(order, "large", 3);
  EXPECT_EQ(order.next(0), sequence(1));
  order.charge("small", 4999, 0);
  EXPECT_EQ(order.next(0), sequence(1));
}

TEST(Order, WhenAllHaveGoneNobodyOwesAnything) {
  Order order(1000);
  submit(order, "a", 1);
  order.charge("a", 5000, 0);
  order.remove("a", sequence(1));
  order.leave("a");
  EXPECT_EQ(order.keys(), 0U);
  submit(order, "a", 2);
  submit(order, "b", 3);
  EXPECT_EQ(order.next(0), sequence(2));
}

TEST(Order, NobodyStarvesInACrowdOfNewKeys) {
  Order order(100);
  order.enter("anchor", 0);  // charged nothing, and not waiting: all new keys begin here
  submit(order, "heavy", 2);
  order.charge("heavy", 1'000'000, 0);
  std::uint64_t request = 3;
  std::uint64_t step = 1;
  for (; step < 1000; ++step) {
    const std::string key = "new" + std::to_string(step);
    submit(order, key, request, step);
    if (order.next(step) == sequence(2)) break;
    order.remove(key, sequence(request++));
    order.leave(key);
  }
  EXPECT_EQ(step, 101U);
}

TEST(Order, RemembersABoundedNumberOfKeys) {
  Order order(100);
  submit(order, "stays", 1);
  for (std::uint64_t request = 2; request < 3 * Order::resting_keys_max; ++request) {
    const std::string key = std::to_string(request);
    submit(order, key, request);
    order.charge(key, 10, 0);
    order.remove(key, sequence(request));
    order.leave(key);
    ASSERT_LE(order.keys(), Order::resting_keys_max + 1);
  }
}

}  // namespace
}  // namespace tutti::serve
