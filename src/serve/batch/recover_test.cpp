// What becomes of requests when there is no memory, in whatever a batch does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "base/prng.hpp"
#include "base/scarcity/scarcity.hpp"
#include "serve/batch/world_test.hpp"

namespace tutti::serve {
namespace {

// What it gives, or nothing if it has thrown for want of memory.
template <class Work>
std::optional<std::vector<Piece>> in_want(std::size_t most, const Work& work) {
  try {
    const Scarcity scarcity(most);
    return work();
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

// The same where one allocation alone is refused, and whether any was.
template <class Work>
std::pair<std::optional<std::vector<Piece>>, bool> in_moment(std::uint32_t given_before, const Work& work) {
  const ScarceMoment moment(given_before);
  try {
    auto pieces = work();
    return {std::move(pieces), moment.has_come()};
  } catch (const std::bad_alloc&) {
    return {std::nullopt, true};
  }
}

TEST(Recover, WhatRanIsLostAndWhatWaitsIsAnswered) {
  World world(small, {.sequences_max = 1});
  const auto runs = world.submit({.prompt = prompt(4), .tokens_max = 5, .answers = 2});
  const auto waits = world.submit({.prompt = prompt(4, 2), .tokens_max = 5});
  ASSERT_TRUE(world.step());
  world.take(world.batch.recover("no memory"));
  EXPECT_EQ(world.finish.at({runs, 0}), Finish::lost);
  EXPECT_EQ(world.finish.at({runs, 1}), Finish::lost) << "the answer that waited for the prompt, too";
  EXPECT_EQ(world.problem.at({runs, 1}), "no memory");
  EXPECT_EQ(world.batch.counts().blocks_used + world.batch.counts().blocks_idle, 0);
  world.run();
  EXPECT_EQ(world.finish.at({waits, 0}), Finish::length);
}

TEST(Recover, ARequestForWhichThereIsNoMemoryHasNotHappened) {
  World world;
  const auto other = world.submit({.prompt = prompt(4), .tokens_max = 5});
  Request large{.prompt = prompt(110), .tokens_max = 5};
  EXPECT_FALSE(in_want(400, [&] {
    EXPECT_TRUE(world.batch.submit(RequestId(2), std::move(large)).ok());
    return std::vector<Piece>();
  }));
  EXPECT_FALSE(world.batch.knows(RequestId(2)));
  world.run();
  EXPECT_EQ(world.finish.at({other, 0}), Finish::length);
}

// The others of its step have their tokens.
TEST(Recover, AnAnswerForWhichThereIsNoMemoryIsLostAloneWithThoseThatWaitForIt) {
  World world;
  Request large{.prompt = prompt(120), .tokens_max = 5, .answers = 2};
  large.sampling.logprobs = 3;
  large.prompt_logprobs = true;
  const auto other = world.submit({.key = "b", .prompt = prompt(4), .tokens_max = 80});
  const auto reads = world.submit(std::move(large));
  while (!world.finish.contains({reads, 0})) {
    const Plan& plan = world.batch.plan();
    ASSERT_FALSE(plan.empty());
    world.toy.step(plan.chunks);
    const auto chosen = world.toy.choose(plan.choices);
    auto pieces = in_want(4000, [&] { return world.batch.take(chosen); });
    ASSERT_TRUE(pieces);
    world.take(*pieces);
  }
  EXPECT_EQ(world.finish.at({reads, 0}), Finish::lost);
  EXPECT_EQ(world.finish.at({reads, 1}), Finish::lost);
  EXPECT_FALSE(world.finish.contains({other, 0}));
  world.run();
  EXPECT_EQ(world.finish.at({other, 0}), Finish::length);
}

// Whenever it happens and whatever it is that there is no memory for: each answer is told its end once, what
// is not lost is what it is alone, and nothing stays.
TEST(Recover, NobodyIsForgottenAndNobodyIsToldTwice) {
  int lost = 0;
  int thrown = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Prng random(seed);
    Limits tight = small;
    tight.blocks = seed % 2 == 0 ? 60 : 24;
    World world(tight, {.drafts_max = seed % 3 == 0 ? 3 : 0});
    World alone(small, {.keeps_prefixes = false});
    std::size_t answers = 0;
    std::map<RequestId, std::vector<Token>> resumed;
    const auto once = [&](const auto& work) {
      const bool in_need = random.chance(0.2);
      std::size_t most = random.below(300);
      auto pieces = in_need ? in_want(most, work) : std::optional(work());
      for (; !pieces; most += random.below(300)) {
        ++thrown;
        pieces = in_want(most, [&] { return world.batch.recover("no memory"); });
      }
      world.take(*pieces);
    };
    for (int steps = 0; world.ids < 40 || !world.batch.empty(); ++steps) {
      ASSERT_LT(steps, 20'000) << seed;
      if (world.ids < 40 && random.chance(0.5)) {
        Request asked{.key = std::to_string(random.below(3)),
                      .prompt = prompt(1 + random.below(30), static_cast<Token>(random.below(40))),
                      .tokens_max = static_cast<std::int32_t>(1 + random.below(20)),
                      .answers = static_cast<std::int32_t>(1 + random.below(3))};
        asked.sampling = {.temperature = 1, .seed = random.next()};
        if (random.chance(0.2)) asked.sampling.presence_penalty = 0.5F;
        const RequestId id = alone.submit(asked);
        alone.run();
        ++world.ids;
        if (asked.answers == 1 && random.chance(0.5)) {
          const auto& all = alone.tokens[{id, 0}];
          asked.resumed.assign(all.begin(),
                               all.begin() + static_cast<std::ptrdiff_t>(random.below(all.size() + 1)));
          resumed[id] = asked.resumed;
        }
        once([&] {
          EXPECT_TRUE(world.batch.submit(id, asked).ok());
          return std::vector<Piece>();
        });
        if (world.batch.knows(id) || world.finish.contains({id, 0})) answers += at(asked.answers);
      }
      if (random.chance(0.02)) once([&] { return world.batch.cancel(RequestId(1 + random.below(40))); });
      const Plan* plan = nullptr;
      once([&] {
        plan = &world.batch.plan();
        return std::vector<Piece>();
      });
      if (plan != nullptr && plan->empty()) once([&] { return world.batch.told(); });
      if (plan == nullptr || plan->empty()) continue;
      world.toy.step(plan->chunks);
      const auto chosen = world.toy.choose(plan->choices);
      once([&] { return world.batch.take(chosen); });
    }
    EXPECT_EQ(world.finish.size(), answers) << seed;
    EXPECT_EQ(world.batch.counts().blocks_used, 0);
    for (const auto& [id, finish] : world.finish) {
      if (finish == Finish::lost) ++lost;
      if (finish == Finish::length) {
        std::vector<Token> all = resumed[id.request];
        all.insert(all.end(), world.tokens[id].begin(), world.tokens[id].end());
        EXPECT_EQ(all, alone.tokens[id]) << seed;
      }
    }
  }
  EXPECT_GT(thrown, 100);
  EXPECT_GT(lost, 100);
}

// One allocation is refused, each in its turn, and all behind it are given: what is half done goes on.
void want_in_every_moment(const Request& asked) {
  int lost = 0;
  for (int turn = 0, turns = 1; turn < turns; ++turn) {
    bool has_come = true;
    for (std::uint32_t given_before = 0; has_come; ++given_before) {
      has_come = false;
      World world;
      int works = 0;
      const auto once = [&](const auto& work) {
        std::optional<std::vector<Piece>> pieces;
        if (works++ == turn) {
          std::tie(pieces, has_come) = in_moment(given_before, work);
        } else {
          pieces = work();
        }
        if (!pieces) pieces = world.batch.recover("no memory");
        world.take(*pieces);
      };
      const RequestId id(1);
      once([&] {
        static_cast<void>(world.batch.submit(id, asked));
        return std::vector<Piece>();
      });
      const std::size_t answers = world.batch.knows(id) ? at(asked.answers) : 0;
      while (!world.batch.empty()) {
        const Plan* plan = nullptr;
        once([&] {
          plan = &world.batch.plan();
          return std::vector<Piece>();
        });
        if (plan == nullptr) continue;
        ASSERT_FALSE(plan->empty()) << "it is forgotten: " << turn << ", " << given_before;
        world.toy.step(plan->chunks);
        const auto chosen = world.toy.choose(plan->choices);
        once([&] { return world.batch.take(chosen); });
      }
      EXPECT_EQ(world.finish.size(), answers) << turn << ", " << given_before;
      EXPECT_EQ(world.batch.counts().blocks_used, 0);
      for (const auto& [answer, finish] : world.finish) lost += finish == Finish::lost ? 1 : 0;
      turns = std::max(turns, works);
    }
  }
  EXPECT_GT(lost, 0);
}

TEST(Recover, AMomentOfWantForgetsNobodyWheneverItComes) {
  Request asked{.key = "a key of its own", .prompt = prompt(6), .tokens_max = 3, .answers = 3};
  asked.sampling = {.temperature = 1, .presence_penalty = 0.5F, .seed = 7};
  want_in_every_moment(asked);
}

TEST(Recover, AMomentOfWantForgetsNobodyWhoIsResumed) {
  Request asked{.key = "a key of its own", .prompt = prompt(6), .resumed = {3, 4}, .tokens_max = 5};
  asked.sampling = {.temperature = 1, .presence_penalty = 0.5F, .seed = 7};
  want_in_every_moment(asked);
}

}  // namespace
}  // namespace tutti::serve
