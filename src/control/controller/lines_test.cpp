#include "control/controller/lines.hpp"

#include <new>
#include <string>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"

namespace tutti::controller {
namespace {

TEST(Lines, AddressesTakeTurns) {
  Lines<int> lines(16);
  for (const int item : {1, 2, 3}) ASSERT_TRUE(lines.add("a", item));
  ASSERT_TRUE(lines.add("b", 4));
  for (const int item : {1, 4, 2, 3}) EXPECT_EQ(lines.take(), item);
  EXPECT_TRUE(lines.empty());
}

// Whatever of it there is no memory for: who comes later finds the place free, and nobody has a turn with
// nothing in his line.
TEST(Lines, WhatThereIsNoMemoryForDoesNotWait) {
  const std::string address(40, 'a');
  int not_kept = 0;
  for (std::size_t given_bytes = 0; given_bytes < 1'024; given_bytes += 8) {
    Lines<int> lines(1);
    bool waits = false;
    {
      const Scarcity scarcity(given_bytes);
      try {
        waits = lines.add(address, 1);
      } catch (const std::bad_alloc&) {
        ++not_kept;
      }
    }
    ASSERT_EQ(lines.empty(), !waits) << given_bytes;
    if (waits) {
      EXPECT_EQ(lines.take(), 1);
    }
    ASSERT_TRUE(lines.add(address, 2)) << given_bytes;
    EXPECT_EQ(lines.take(), 2);
    EXPECT_TRUE(lines.empty());
  }
  EXPECT_GT(not_kept, 0);
}

}  // namespace
}  // namespace tutti::controller
