#include "learn/train/patience.hpp"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

using namespace std::chrono_literals;

constexpr PatienceOptions options{.pause_first = 1s, .pause_max = 4s, .for_all = 20s, .once_stopped = 3s};

TEST(Patience, TriesLaterAndLaterAndOnceMoreAtTheEnd) {
  Duration now = 100s;
  Patience patience(options, now);
  for (const Duration expected : {1s, 2s, 4s, 4s, 4s, 4s, 1s}) {
    const auto pause = patience.next_pause(now, false);
    ASSERT_TRUE(pause);
    EXPECT_EQ(*pause, expected) << format_duration(now);
    now += *pause;
  }
  EXPECT_FALSE(patience.next_pause(now, false));
}

TEST(Patience, IsShortOnceTheRankIsAskedToStop) {
  Duration now = 0s;
  Patience patience(options, now);
  now += 10s;
  for (const Duration expected : {1s, 2s}) {
    const auto pause = patience.next_pause(now, true);
    ASSERT_TRUE(pause);
    EXPECT_EQ(*pause, expected);
    now += *pause;
  }
  EXPECT_FALSE(patience.next_pause(now, true));
  EXPECT_FALSE(Patience(options, now).next_pause(now + 20s, true)) << "nothing begins anew";
}

}  // namespace
}  // namespace tutti::train
