// Answers that are cut at every token and go on in another batch: token by token what they are uncut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/prng.hpp"
#include "serve/batch/world_test.hpp"

namespace tutti::serve {
namespace {

// A walk on a circle, on which one token of five is no step, and which ends where it began before.
class Circle final : public Guide {
 public:
  explicit Circle(std::uint64_t token_work = 0) : token_work_(token_work) {}
  State start() override { return 1; }
  std::span<const std::uint64_t> allowed(State state) override {
    mask_ = 0;
    for (Token token = 0; token < 40; ++token) {
      if (token % 5 != state % 5) mask_ |= std::uint64_t{1} << at(token);
    }
    return {&mask_, 1};
  }
  std::uint64_t work() const override { return work_; }
  State next(State state, Token token) override {
    work_ += token_work_;
    return token % 5 == state % 5 ? dead : (state + token) % 23;
  }
  bool ended(State state) override { return state == 0; }

 private:
  const std::uint64_t token_work_;
  std::uint64_t work_ = 0;
  std::uint64_t mask_ = 0;
};

Request request_to_cut(Prng& random) {
  Request request{.key = std::to_string(random.below(3)),
                  .prompt = prompt(1 + random.below(30), static_cast<Token>(random.below(40))),
                  .adapter = static_cast<std::int32_t>(random.below(2)),
                  .tokens_max = static_cast<std::int32_t>(1 + random.below(60))};
  if (random.chance(0.2)) request.stop_ids = {static_cast<Token>(random.below(40)), 3};
  if (random.chance(0.4)) request.stop_texts = {"fghf", "ghi", "\xC3\xA9", "hijk", "ijd"};
  Sampling& sampling = request.sampling;
  sampling.seed = random.next();
  if (random.chance(0.5)) sampling.biases = {{30, 4.0F}, {31, 4.0F}, {32, 4.0F}, {33, 4.0F}};  // half letters
  if (random.chance(0.6)) sampling.temperature = static_cast<float>(0.2 + random.unit());
  if (random.chance(0.3)) {
    sampling.repetition_penalty = 1.3F;
    sampling.presence_penalty = 0.4F;
    sampling.frequency_penalty = 0.2F;
  }
  if (random.chance(0.3)) request.guide = std::make_shared<Circle>();
  return request;
}

// What was said of an answer when it had so many tokens.
struct Uncut {
  std::vector<Token> tokens;
  std::vector<std::string> said{""};
  Finish finish = Finish::failed;
};

Uncut uncut(const Request& request) {
  World world(small, {.keeps_prefixes = false});
  const SequenceId id{world.submit(request), 0};
  Uncut answer;
  while (world.step()) {
    answer.tokens = world.tokens[id];
    if (answer.tokens.size() == answer.said.size()) answer.said.push_back(world.text[id]);
  }
  EXPECT_EQ(answer.said.size(), answer.tokens.size() + 1) << "one token a step";
  answer.finish = world.finish.at(id);
  return answer;
}

void run(World& world) {
  for (int steps = 0; !world.batch.empty(); ++steps) {
    ASSERT_LT(steps, 100'000) << "requests are left and nothing comes of them";
    world.step();
  }
}

// All of its beginnings at once, so that they share and contend for the blocks.
void cut_everywhere(World& world, const Request& request, const Uncut& whole) {
  const std::int64_t generated = world.batch.counts().generated_tokens;
  std::int64_t left = 0;
  std::vector<SequenceId> ids;
  for (std::size_t cut = 0; cut <= whole.tokens.size(); ++cut) {
    Request rest = request;
    rest.resumed.assign(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(cut));
    ids.push_back({world.submit(std::move(rest)), 0});
    left += static_cast<std::int64_t>(whole.tokens.size() - cut);
  }
  run(world);
  for (std::size_t cut = 0; cut <= whole.tokens.size(); ++cut) {
    const SequenceId& id = ids[cut];
    const std::vector<Token> rest(whole.tokens.begin() + static_cast<std::ptrdiff_t>(cut),
                                  whole.tokens.end());
    EXPECT_EQ(world.tokens[id], rest) << "cut at " << cut;
    EXPECT_EQ(whole.said[cut] + world.text[id], whole.said.back()) << "cut at " << cut;
    EXPECT_EQ(world.finish.at(id), whole.finish) << "cut at " << cut;
  }
  EXPECT_EQ(world.batch.counts().generated_tokens - generated, left) << "what it was given does not count";
  EXPECT_EQ(world.batch.counts().blocks_used, 0);
}

void cut_many(const Limits& limits, const BatchSettings& settings, std::uint64_t seed, int requests,
              BatchCounts& counts) {
  Prng random(seed);
  World world(limits, settings);
  int stopped = 0;
  int held = 0;
  for (int nth = 0; nth < requests; ++nth) {
    const Request request = request_to_cut(random);
    const Uncut whole = uncut(request);
    stopped += whole.finish == Finish::stop ? 1 : 0;
    for (std::size_t cut = 1; cut < whole.said.size(); ++cut)
      held += whole.said[cut] == whole.said[cut - 1] ? 1 : 0;
    cut_everywhere(world, request, whole);
    if (testing::Test::HasFailure()) FAIL() << "request " << nth << " of seed " << seed;
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(held, 0) << "texts are cut while some of them is held back";
  counts = world.batch.counts();
}

TEST(Resume, AnAnswerThatWasCutAnywhereIsTheSame) {
  BatchCounts counts;
  Limits roomy = small;
  roomy.blocks = 1000;
  cut_many(roomy, {.keeps_prefixes = false}, 1, 300, counts);
  EXPECT_EQ(counts.preemptions, 0);
  EXPECT_EQ(counts.cached_tokens, 0);
}

TEST(Resume, WithSharedPrefixesAndWithoutRoom) {
  BatchCounts counts;
  Limits tight = small;
  tight.blocks = 23;  // that the longest needs
  cut_many(tight, {}, 2, 300, counts);
  EXPECT_GT(counts.preemptions, 0);
  EXPECT_GT(counts.cached_tokens, 0);
}

TEST(Resume, WithGuesses) {
  BatchCounts counts;
  cut_many(small, {.drafts_max = 4}, 3, 300, counts);
  EXPECT_GT(counts.accepted_tokens, 0);
}

// What is over is told without a step.
TEST(Resume, AnAnswerThatIsOverIsNotComputed) {
  World world;
  const auto by_length = world.submit({.prompt = prompt(4), .resumed = {7, 8}, .tokens_max = 2});
  const auto by_token =
      world.submit({.prompt = prompt(4), .resumed = {7, 8, 9}, .tokens_max = 5, .stop_ids = {8}});
  const auto by_text = world.submit(
      {.prompt = prompt(4), .resumed = {0, 7, 8}, .tokens_max = 5, .stop_texts = {"hi"}});  // a, h, i
  Request formed{.prompt = prompt(4), .resumed = {22}, .tokens_max = 5};
  formed.guide = std::make_shared<Circle>();
  const auto by_form = world.submit(formed);
  EXPECT_FALSE(world.step());
  EXPECT_TRUE(world.batch.empty());
  EXPECT_EQ(world.finish.at({by_length, 0}), Finish::length);
  for (const RequestId id : {by_token, by_text, by_form}) EXPECT_EQ(world.finish.at({id, 0}), Finish::stop);
  for (const auto& [id, text] : world.text) EXPECT_EQ(text, "") << "it was said where it ended";
  EXPECT_EQ(world.batch.counts().steps, 0);
  EXPECT_EQ(world.batch.counts().generated_tokens, 0);
  EXPECT_EQ(world.batch.counts().finished, 4);
}

TEST(Resume, TokensThatHaveNotTheFormOfTheAnswerAreNoBeginningOfIt) {
  World world;
  Request request{.prompt = prompt(4), .resumed = {2, 3}, .tokens_max = 5};
  request.guide = std::make_shared<Circle>();
  const auto id = world.submit(request);
  EXPECT_FALSE(world.step());
  EXPECT_EQ(world.finish.at({id, 0}), Finish::failed);
  EXPECT_NE(world.problem.at({id, 0}).find("not of the form"), std::string::npos);
}

TEST(Resume, WhatIsFoundOfTheAnswerIsNoPartOfThePrompt) {
  World world;
  const Request request{.prompt = prompt(10), .tokens_max = 30};
  const auto first = world.submit(request);
  world.run();
  Request rest = request;
  rest.resumed = world.tokens[{first, 0}];
  rest.resumed.resize(20);
  world.submit(std::move(rest));
  std::int64_t cached = -1;
  while (!world.batch.empty()) {
    const Plan& plan = world.batch.plan();
    world.toy.step(plan.chunks);
    for (const Piece& piece : world.batch.take(world.toy.choose(plan.choices))) cached = piece.cached_tokens;
  }
  EXPECT_EQ(world.batch.counts().cached_tokens, 28) << "seven blocks, of which the answer has more than four";
  EXPECT_EQ(cached, 10);
}

// A guide that has much to do with each token does it in many steps, and others have their tokens meanwhile.
TEST(Resume, NobodyWaitsWhileAGuideReadsALongAnswer) {
  World world(small, {.step_guide_work_max = 1000});
  Request request{.prompt = prompt(4), .tokens_max = 60};
  request.sampling.biases = {{23, 1000.0F}};  // once round, and never where it ends
  request.guide = std::make_shared<Circle>(400);
  const Uncut whole = uncut(request);
  ASSERT_GT(whole.tokens.size(), 12U);
  Request rest = request;
  rest.resumed = whole.tokens;
  rest.resumed.resize(12);
  const SequenceId talker{world.submit({.prompt = prompt(5, 2), .tokens_max = 30}), 0};
  ASSERT_TRUE(world.step());
  const SequenceId id{world.submit(rest), 0};
  for (std::size_t tokens = 2; tokens <= 4; ++tokens) {
    ASSERT_TRUE(world.step());
    EXPECT_EQ(world.tokens[talker].size(), tokens);
    EXPECT_TRUE(world.tokens[id].empty()) << "three of its tokens are read in a step";
    EXPECT_EQ(world.batch.counts().waiting, 1);
  }
  run(world);
  rest.resumed.insert(rest.resumed.end(), world.tokens[id].begin(), world.tokens[id].end());
  EXPECT_EQ(rest.resumed, whole.tokens);
}

TEST(Resume, AnswersAreReadInTurns) {
  World world(small, {.step_guide_work_max = 1000, .step_resumed_max = 20});
  Request formed{.prompt = prompt(4), .resumed = std::vector<Token>(20, 23), .tokens_max = 21};
  formed.guide = std::make_shared<Circle>(1000);
  const SequenceId long_one{world.submit(formed), 0};
  formed.resumed.resize(2);
  formed.tokens_max = 3;
  const SequenceId short_one{world.submit(formed), 0};
  const SequenceId free{
      world.submit({.prompt = prompt(4), .resumed = std::vector<Token>(30, 23), .tokens_max = 31}), 0};
  EXPECT_FALSE(world.step()) << "one token of the first, and nineteen of the last";
  EXPECT_TRUE(world.step());
  EXPECT_EQ(world.batch.counts().running, 1) << "no guide has anything to do for it";
  run(world);
  EXPECT_EQ(world.order, (std::vector{short_one.request, free.request, long_one.request}));
}

TEST(Resume, WhoLeavesWhileHisAnswerIsReadIsForgotten) {
  World world(small, {.step_guide_work_max = 1000});
  Request request{.prompt = prompt(4), .resumed = {3, 6, 9, 6, 6}, .tokens_max = 60};
  request.guide = std::make_shared<Circle>(1000);
  const auto cancelled = world.submit(request);
  EXPECT_FALSE(world.step());
  world.take(world.batch.cancel(cancelled));
  EXPECT_EQ(world.finish.at({cancelled, 0}), Finish::cancelled);
  const auto half_read = world.submit(request);
  EXPECT_FALSE(world.step());
  const auto not_begun = world.submit({.prompt = prompt(4), .resumed = {3}, .tokens_max = 3});
  world.take(world.batch.recover("no memory"));
  EXPECT_EQ(world.finish.at({half_read, 0}), Finish::lost);
  EXPECT_FALSE(world.finish.contains({not_begun, 0}));
  run(world);
  EXPECT_EQ(world.finish.at({not_begun, 0}), Finish::length);
  EXPECT_EQ(world.tokens[(SequenceId{not_begun, 0})].size(), 2U);
}

}  // namespace
}  // namespace tutti::serve
