// How keys share the blocks of the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/index.hpp"
#include "base/prng.hpp"
#include "serve/batch/world_test.hpp"

namespace tutti::serve {
namespace {

Limits with_blocks(std::int32_t blocks) {
  Limits limits = small;
  limits.blocks = blocks;
  return limits;
}

// Long answers of one key until there is no block left.
void flood(World& world, int requests) {
  for (int request = 0; request < requests; ++request)
    world.submit({.key = "flood", .prompt = prompt(8, request % 40), .tokens_max = 60});
  while (world.batch.counts().preemptions == 0) ASSERT_TRUE(world.step());
}

TEST(Share, WhoAsksForLittleIsLetInThoughAnotherKeyHasAllBlocks) {
  World world(with_blocks(40), {.keeps_prefixes = false});
  flood(world, 20);
  ASSERT_GE(world.batch.counts().blocks_used, 34);
  const auto finished = world.finish.size();
  const auto guest = world.submit({.key = "guest", .prompt = prompt(10, 3), .tokens_max = 12});
  for (int steps = 0; !world.finish.contains({guest, 0}); ++steps) {
    ASSERT_TRUE(world.step());
    ASSERT_LT(steps, 20) << "a step for its prompt and one for each token, and it is never put back";
  }
  EXPECT_EQ(world.finish.size(), finished + 1) << "and it has waited for no other";
  world.run();
}

TEST(Share, WhoComesWithALongPromptIsLetInToo) {
  World world(with_blocks(40), {.keeps_prefixes = false});
  flood(world, 20);
  const auto finished = world.finish.size();
  const auto guest = world.submit({.key = "guest", .prompt = prompt(56, 3), .tokens_max = 4});
  for (int steps = 0; !world.finish.contains({guest, 0}); ++steps) {
    ASSERT_TRUE(world.step());
    ASSERT_LT(steps, 20);
  }
  EXPECT_EQ(world.finish.size(), finished + 1);
  world.run();
}

// However many long answers it asks for, and however often the other comes.
TEST(Share, WhoKeepsAskingForLittleIsNeverPutBackForWhoHasMore) {
  World world(with_blocks(40), {.passing_steps = 16, .keeps_prefixes = false});
  flood(world, 40);
  for (int nth = 0; nth < 20; ++nth) {
    const auto guest = world.submit({.key = "guest", .prompt = prompt(6, nth), .tokens_max = 10});
    for (int steps = 0; !world.finish.contains({guest, 0}); ++steps) {
      ASSERT_TRUE(world.step());
      ASSERT_LT(steps, 24) << nth;
    }
  }
  world.run();
  EXPECT_EQ(world.finish.size(), 60U);
}

TEST(Share, OneKeyAloneHasAllBlocks) {
  World world(with_blocks(40), {.keeps_prefixes = false});
  flood(world, 8);
  EXPECT_EQ(world.finish.size(), 0U);
  EXPECT_GE(world.batch.counts().blocks_used, 34);
  const auto before = world.batch.counts().running;
  EXPECT_GT(before, 1);
  world.run();
  EXPECT_EQ(world.finish.size(), 8U);
}

TEST(Share, KeysThatHaveTheirShareOfTheBlocksDoNotMakeWayForEachOther) {
  World world(with_blocks(60), {.keeps_prefixes = false});
  for (int request = 0; request < 12; ++request) {
    const std::string key = "key" + std::to_string(request % 3);
    world.submit({.key = key, .prompt = prompt(40, request), .tokens_max = 8});
  }
  world.run();
  EXPECT_LE(world.batch.counts().preemptions, 4) << "of a hundred steps";
}

// One answer that needs nearly all of the cache ends beside a key that never stops asking for little.
TEST(Share, WhoNeedsMoreThanHisShareEnds) {
  World world(with_blocks(40), {.passing_steps = 16, .keeps_prefixes = false});
  const auto large = world.submit({.key = "large", .prompt = prompt(40), .tokens_max = 110});
  std::set<RequestId> open;
  for (int steps = 0; !world.finish.contains({large, 0}); ++steps) {
    ASSERT_LT(steps, 3000);
    if (open.size() < 6)
      open.insert(world.submit(
          {.key = "little" + std::to_string(steps % 2), .prompt = prompt(4, steps % 40), .tokens_max = 20}));
    ASSERT_TRUE(world.step());
    std::erase_if(open, [&](RequestId id) { return world.finish.contains({id, 0}); });
  }
  world.run();
}

// What a key shares with another, as a prompt that all begin with, is not counted for each of its answers.
TEST(Share, AnswersThatShareTheirPromptCountItOnce) {
  World world(with_blocks(48));
  Request many{.key = "many", .prompt = prompt(80), .tokens_max = 8, .answers = 4};
  many.sampling.temperature = 1;
  const auto first = world.submit(many);
  while (world.batch.counts().running < 4) ASSERT_TRUE(world.step());
  world.submit({.key = "other", .prompt = prompt(60, 5), .tokens_max = 8});
  world.run();
  EXPECT_EQ(world.batch.counts().preemptions, 0) << "there is room for all";
  EXPECT_EQ(world.finish.at({first, 3}), Finish::length);
}

// Whoever asks for what, all of it ends, and each answer is what it is alone.
TEST(Share, AllRequestsEndHoweverManyKeysCompeteForFewBlocks) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Prng random(seed);
    World world(with_blocks(static_cast<std::int32_t>(random.between(24, 60))),
                {.passing_steps = 8, .keeps_prefixes = random.chance(0.5)});
    World alone(with_blocks(60), {.keeps_prefixes = false});
    for (int steps = 0; world.ids < 60 || !world.batch.empty(); ++steps) {
      ASSERT_LT(steps, 20'000) << seed;
      if (world.ids < 60 && random.chance(0.3)) {
        const auto key = random.below(3);
        Request asked{.key = std::to_string(key),
                      .prompt = prompt(1 + random.below(40), static_cast<Token>(random.below(40))),
                      .tokens_max = static_cast<std::int32_t>(1 + random.below(key == 0 ? 50 : 8))};
        asked.sampling = {.temperature = 1, .seed = random.next()};
        world.submit(asked);
        alone.submit(asked);
        alone.run();
      }
      world.step();
    }
    EXPECT_EQ(world.tokens, alone.tokens) << seed;
  }
}

}  // namespace
}  // namespace tutti::serve
