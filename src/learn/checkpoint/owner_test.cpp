#include "learn/checkpoint/owner.hpp"

#include <gtest/gtest.h>

namespace tutti::checkpoint {
namespace {

SeenOwner seen(const std::string& token, std::int64_t beat_ns) {
  return {.owner = {.fence = {}, .token = token}, .beat_ns = beat_ns};
}

TEST(OwnerWatch, CountsForHowLongAnOwnerWasSeenWithoutABeat) {
  OwnerWatch watch(250ms);
  EXPECT_EQ(watch.still_for(seen("a", 1), 100s), 0s);
  EXPECT_EQ(watch.still_for(seen("a", 1), 100s + 250ms), 250ms);
  EXPECT_EQ(watch.still_for(seen("a", 1), 100s + 600ms), 600ms) << "a little late is still a look";
  EXPECT_EQ(watch.still_for(seen("b", 1), 101s), 0s) << "another owner";
  EXPECT_EQ(watch.still_for(seen("b", 2), 101s + 250ms), std::nullopt) << "it lives";
}

// A disk that does not answer for a minute keeps the owner from beating and the looker from looking.
TEST(OwnerWatch, DoesNotCountWhatTheLookerSleptThrough) {
  OwnerWatch watch(250ms);
  EXPECT_EQ(watch.still_for(seen("a", 1), 100s), 0s);
  EXPECT_EQ(watch.still_for(seen("a", 1), 160s), 500ms);
  EXPECT_EQ(watch.still_for(seen("a", 1), 160s + 250ms), 750ms);
  EXPECT_EQ(watch.still_for(seen("a", 2), 160s + 500ms), std::nullopt)
      << "it beats again, and was never dead";
}

}  // namespace
}  // namespace tutti::checkpoint
