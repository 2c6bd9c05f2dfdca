#include "serve/cpu/team.hpp"

#include <atomic>
#include <new>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::serve::cpu {
namespace {

TEST(Team, DoesEveryPieceOnceInEveryPhase) {
  for (const int threads : {1, 2, 5}) {
    Team team(threads);
    ASSERT_EQ(team.size(), threads);
    std::vector<int> counts(1000, 0);
    bool in_order = true;
    for (int run = 0; run < 20; ++run) {
      team.run([&](Member& member) {
        for (int phase = 0; phase < 5; ++phase) {
          // What the phase before has done is there, all of it, whoever did it.
          member.share(1000, 7, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t at = begin; at < end; ++at) {
              if (counts[static_cast<std::size_t>(999 - at)] < run * 5 + phase) in_order = false;
              ++counts[static_cast<std::size_t>(at)];
            }
          });
          // Nobody reads what another writes meanwhile.
          member.meet();
        }
      });
    }
    EXPECT_TRUE(in_order);
    for (const int count : counts) ASSERT_EQ(count, 100);
  }
}

TEST(Team, SharesNothingOfNothing) {
  Team team(3);
  std::atomic<int> calls{0};
  team.run([&](Member& member) { member.share(0, 4, [&](std::int64_t, std::int64_t) { ++calls; }); });
  EXPECT_EQ(calls, 0);
}

// Whoever has no memory, the caller or another: the others are not left waiting, and the next run is fine.
TEST(Team, WhatThereIsNoMemoryForIsThrownWhenAllAreDone) {
  Team team(3);
  for (std::int64_t hungry = 0; hungry < 30; ++hungry) {
    std::atomic<int> done{0};
    const auto run = [&](std::int64_t without) {
      team.run([&](Member& member) {
        for (int phase = 0; phase < 2; ++phase) {
          member.share(30, 1, [&](std::int64_t begin, std::int64_t) {
            if (begin == without) throw std::bad_alloc();
            ++done;
          });
        }
      });
    };
    EXPECT_THROW(run(hungry), std::bad_alloc);
    EXPECT_EQ(done, 58);
    run(-1);
    EXPECT_EQ(done, 118);
  }
}

TEST(Team, WakesUpAgain) {
  Team team(4);
  std::atomic<int> members{0};
  for (int run = 0; run < 3; ++run) {
    team.run([&](Member& member) {
      members += 1 + member.index() * 0;
      member.meet();
    });
  }
  EXPECT_EQ(members, 12);
}

}  // namespace
}  // namespace tutti::serve::cpu
