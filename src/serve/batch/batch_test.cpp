#include "serve/batch/batch.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <limits>

#include "base/index.hpp"
#include "serve/batch/world_test.hpp"

namespace tutti::serve {
namespace {

TEST(Batch, AnswersUpToTheLength) {
  World world;
  const auto id = world.submit({.prompt = prompt(5), .tokens_max = 7});
  world.run();
  EXPECT_EQ(world.tokens[(SequenceId{id, 0})].size(), 7U);
  EXPECT_EQ(world.finish[(SequenceId{id, 0})], Finish::length);
  EXPECT_EQ(world.batch.counts().blocks_used, 0);
  EXPECT_EQ(world.batch.counts().finished, 1);
  EXPECT_EQ(world.batch.counts().generated_tokens, 7);
}

TEST(Batch, LongPromptsComeInPartsWhileOthersGoOn) {
  World world;
  const auto talker = world.submit({.key = "a", .prompt = prompt(4), .tokens_max = 40});
  world.step();
  world.submit({.key = "b", .prompt = prompt(60, 3), .tokens_max = 2});
  std::size_t before = world.tokens[(SequenceId{talker, 0})].size();
  for (int step = 0; step < 4; ++step) {
    world.step();
    EXPECT_EQ(world.tokens[(SequenceId{talker, 0})].size(), ++before) << "each step has a token of it";
  }
  EXPECT_EQ(world.order.size(), 2U) << "60 tokens fit into 4 steps of 15";
  world.run();
}

TEST(Batch, AShortPromptPassesALongOneOfAnotherKey) {
  World world;
  const auto long_one = world.submit({.key = "a", .prompt = prompt(100), .tokens_max = 1});
  world.step();
  const auto short_one = world.submit({.key = "b", .prompt = prompt(8, 1), .tokens_max = 1});
  world.run();
  EXPECT_EQ(world.order, (std::vector{short_one, long_one}));
}

TEST(Batch, TheSamePrefixIsComputedOnce) {
  World world;
  world.submit({.prompt = prompt(21), .tokens_max = 1});
  world.run();
  EXPECT_EQ(world.batch.counts().prompt_tokens, 21);
  world.submit({.prompt = prompt(21), .tokens_max = 1});
  world.run();
  EXPECT_EQ(world.batch.counts().prompt_tokens, 22) << "five blocks were found, one token is computed";
  EXPECT_EQ(world.batch.counts().cached_tokens, 20);
  world.submit({.prompt = prompt(21), .adapter = 1, .tokens_max = 1});
  world.run();
  EXPECT_EQ(world.batch.counts().prompt_tokens, 43) << "another adapter, other keys and values";
  EXPECT_EQ(world.tokens[(SequenceId{RequestId(1), 0})], world.tokens[(SequenceId{RequestId(2), 0})]);
  EXPECT_NE(world.tokens[(SequenceId{RequestId(1), 0})], world.tokens[(SequenceId{RequestId(3), 0})]);
}

TEST(Batch, AnswersOfOneRequestShareItsPrompt) {
  World world;
  const auto id = world.submit(
      {.prompt = prompt(20), .tokens_max = 6, .answers = 4, .sampling = {.temperature = 1, .seed = 5}});
  world.run();
  EXPECT_EQ(world.batch.counts().prompt_tokens, 20 + 3 * 4) << "the last block is each one's own";
  EXPECT_NE(world.tokens[(SequenceId{id, 0})], world.tokens[(SequenceId{id, 1})]);
  EXPECT_EQ(world.finish.size(), 4U);
}

TEST(Batch, TheYoungestGoesBackWhenBlocksRunOut) {
  Limits tight = small;
  tight.blocks = 12;
  World world(tight, {.keeps_prefixes = false});
  const auto old = world.submit({.prompt = prompt(8), .tokens_max = 30});
  const auto young = world.submit({.prompt = prompt(8, 5), .tokens_max = 30});
  world.run();
  EXPECT_GT(world.batch.counts().preemptions, 0);
  EXPECT_EQ(world.tokens[(SequenceId{old, 0})].size(), 30U);
  EXPECT_EQ(world.tokens[(SequenceId{young, 0})].size(), 30U);

  World alone;
  alone.submit({.prompt = prompt(8), .tokens_max = 30});
  alone.submit({.prompt = prompt(8, 5), .tokens_max = 30});
  alone.run();
  EXPECT_EQ(alone.batch.counts().preemptions, 0);
  EXPECT_EQ(alone.tokens, world.tokens);
}

TEST(Batch, StopsAtTokensAndTexts) {
  World world;
  const auto plain = world.submit({.prompt = prompt(6), .tokens_max = 20});
  world.run();
  const auto all = world.tokens[(SequenceId{plain, 0})];
  const auto fifth = all[4];
  const auto first_place = at(std::find(all.begin(), all.end(), fifth) - all.begin());

  const auto by_token = world.submit({.prompt = prompt(6), .tokens_max = 20, .stop_ids = {fifth}});
  world.run();
  EXPECT_EQ(world.tokens[(SequenceId{by_token, 0})].size(), first_place + 1);
  EXPECT_EQ(world.finish[(SequenceId{by_token, 0})], Finish::stop);
  std::string before;
  for (std::size_t nth = 0; nth < first_place; ++nth) before += toy_bytes(all[nth]);
  EXPECT_EQ(world.text[(SequenceId{by_token, 0})], before);

  const std::string whole = world.text[(SequenceId{plain, 0})];
  const std::string stop = whole.substr(6, 3);
  const auto by_text = world.submit({.prompt = prompt(6), .tokens_max = 20, .stop_texts = {stop}});
  world.run();
  EXPECT_EQ(world.text[(SequenceId{by_text, 0})], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(world.finish[(SequenceId{by_text, 0})], Finish::stop);
}

// What one request may ask for is bounded, and must not be multiplied by its answers.
TEST(Batch, AnswersOfOneRequestShareItsStopTexts) {
  World world;
  Request many{.prompt = prompt(4), .tokens_max = 4, .answers = answers_max};
  for (std::size_t nth = 0; nth < stop_texts_max; ++nth)
    many.stop_texts.push_back(std::string(stop_text_bytes_max - nth, 'x'));
  const std::size_t before = mallinfo2().uordblks;
  world.submit(std::move(many));
  EXPECT_LT(mallinfo2().uordblks - before, std::size_t{2} << 20);
  world.run();
}

TEST(Batch, LogprobsComeWithTheirTokens) {
  World world(small, {.drafts_max = 4});
  Request request{.prompt = prompt(6), .tokens_max = 60};
  request.sampling.logprobs = 2;
  const auto id = world.submit(std::move(request));
  std::vector<Token> tokens;
  while (!world.batch.empty()) {
    const Plan& plan = world.batch.plan();
    world.toy.step(plan.chunks);
    for (const Piece& piece : world.batch.take(world.toy.choose(plan.choices))) {
      ASSERT_EQ(piece.request, id);
      ASSERT_EQ(piece.choices.size(), piece.tokens.size());
      for (std::size_t nth = 0; nth < piece.tokens.size(); ++nth) {
        EXPECT_EQ(piece.choices[nth].token, piece.tokens[nth]);
        EXPECT_EQ(piece.choices[nth].likeliest.size(), 2U);
        EXPECT_EQ(piece.choices[nth].likeliest.front().value, piece.choices[nth].logprob) << "greedy";
      }
      tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    }
  }
  EXPECT_EQ(tokens.size(), 60U);
}

// The prompt is in the cache already, and comes in three parts: the mean is that of all of its tokens.
TEST(Batch, AMeanIsOfAllTokensOfThePrompt) {
  World world;
  world.submit({.prompt = prompt(40), .tokens_max = 1});
  world.run();
  const auto id = world.submit({.prompt = prompt(40), .tokens_max = 1, .pooling = Pooling::mean});
  std::vector<float> mean;
  while (!world.batch.empty()) {
    const Plan& plan = world.batch.plan();
    world.toy.step(plan.chunks);
    for (const Piece& piece : world.batch.take(world.toy.choose(plan.choices))) {
      ASSERT_EQ(piece.request, id);
      ASSERT_EQ(piece.choices.size(), 1U);
      EXPECT_EQ(piece.cached_tokens, 0);
      mean = piece.choices.front().hidden;
    }
  }
  EXPECT_EQ(world.batch.counts().prompt_tokens, 80) << "nothing was found";
  std::vector<double> sum(3);
  for (std::size_t size = 1; size <= 40; ++size) {
    World alone;
    const auto last = prompt(size);
    alone.submit({.prompt = last, .tokens_max = 1, .pooling = Pooling::last});
    std::vector<float> hidden;
    while (!alone.batch.empty()) {
      const Plan& plan = alone.batch.plan();
      alone.toy.step(plan.chunks);
      for (const Piece& piece : alone.batch.take(alone.toy.choose(plan.choices)))
        hidden = piece.choices.front().hidden;
    }
    ASSERT_EQ(hidden.size(), sum.size());
    for (std::size_t which = 0; which < sum.size(); ++which) sum[which] += static_cast<double>(hidden[which]);
  }
  ASSERT_EQ(mean.size(), sum.size());
  for (std::size_t which = 0; which < sum.size(); ++which)
    EXPECT_EQ(mean[which], static_cast<float>(sum[which] / 40));
}

TEST(Batch, LogprobsOfALongPromptLeaveRowsToOthers) {
  World world;
  Request reads{.key = "a", .prompt = prompt(100), .tokens_max = 1};
  reads.sampling.logprobs = 1;
  reads.prompt_logprobs = true;
  world.submit(std::move(reads));
  world.step();
  const auto other = world.submit({.key = "b", .prompt = prompt(8, 1), .tokens_max = 3});
  while (!world.finish.contains({other, 0})) {
    const Plan& plan = world.batch.plan();
    std::int32_t rows = 0;
    for (const Chunk& chunk : plan.chunks) rows += chunk.rows;
    EXPECT_LE(rows, small.step_rows_max);
    world.toy.step(plan.chunks);
    world.take(world.batch.take(world.toy.choose(plan.choices)));
  }
  EXPECT_FALSE(world.finish.contains({RequestId(1), 0})) << "it takes 25 steps";
  world.run();
}

TEST(Batch, CancellationFreesBlocksAtOnce) {
  World world;
  const auto id = world.submit({.prompt = prompt(30), .tokens_max = 50, .answers = 3});
  world.step();
  EXPECT_GT(world.batch.counts().blocks_used, 0);
  world.take(world.batch.cancel(id));
  EXPECT_EQ(world.batch.counts().blocks_used, 0);
  EXPECT_EQ(world.finish[(SequenceId{id, 2})], Finish::cancelled);
  EXPECT_TRUE(world.batch.empty());
  EXPECT_TRUE(world.batch.cancel(id).empty());
}

TEST(Batch, AFailedStepEndsWhatRan) {
  World world(small, {.sequences_max = 1});
  const auto runs = world.submit({.prompt = prompt(4), .tokens_max = 5});
  const auto waits = world.submit({.prompt = prompt(4, 2), .tokens_max = 5});
  ASSERT_FALSE(world.batch.plan().empty());
  const auto pieces = world.batch.fail("the device is gone");
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces.front().problem, "the device is gone");
  world.take(pieces);
  EXPECT_EQ(world.finish[(SequenceId{runs, 0})], Finish::failed);
  EXPECT_FALSE(world.finish.contains({waits, 0}));
  world.run();
  EXPECT_EQ(world.tokens[(SequenceId{waits, 0})].size(), 5U);
}

TEST(Batch, TooManyRequestsAreToldToComeBack) {
  Batch batch(small, {.requests_max = 2}, toy_bytes);
  EXPECT_TRUE(batch.submit(RequestId(1), {.prompt = {1}, .tokens_max = 1}).ok());
  EXPECT_TRUE(batch.submit(RequestId(2), {.prompt = {1}, .tokens_max = 1}).ok());
  const auto refused = batch.submit(RequestId(3), {.prompt = {1}, .tokens_max = 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::failed);
}

TEST(Batch, AFloodOfOneKeyDoesNotDelayAnother) {
  World world;
  for (int request = 0; request < 100; ++request)
    world.submit({.key = "flood", .prompt = prompt(10, request % 40), .tokens_max = 4});
  for (int step = 0; step < 5; ++step) world.step();
  std::vector<RequestId> guests;
  for (int request = 0; request < 5; ++request)
    guests.push_back(world.submit({.key = "guest", .prompt = prompt(10, request + 20), .tokens_max = 4}));
  const auto before = world.order.size();
  while (!world.finish.contains({guests.back(), 0})) ASSERT_TRUE(world.step());
  // Both keys had about the same while the guest was there: each of its five beside one or two of the flood.
  EXPECT_LE(world.order.size() - before, 5U * 3);
  world.run();
}

TEST(Batch, OneKeyInAllPlacesMakesWayForAnother) {
  World world(small, {.sequences_max = 4});
  Request much{.key = "much", .prompt = prompt(4), .tokens_max = 24};
  much.answers = 4;
  much.sampling.temperature = 1;
  World alone(small, {.sequences_max = 4});
  alone.submit(much);
  alone.run();
  const auto first = world.submit(much);
  while (world.batch.counts().running < 4) ASSERT_TRUE(world.step());
  const auto guest = world.submit({.key = "guest", .prompt = prompt(5, 9), .tokens_max = 4});
  while (!world.finish.contains({guest, 0})) {
    ASSERT_TRUE(world.step());
    ASSERT_FALSE(world.finish.contains({first, 0})) << "it waits for those who have all places";
  }
  EXPECT_EQ(world.batch.counts().preemptions, 1) << "one makes way, once";
  world.run();
  for (std::int32_t answer = 0; answer < 4; ++answer)
    EXPECT_EQ((world.tokens[{first, answer}]), (alone.tokens[{RequestId(1), answer}])) << answer;
}

TEST(Batch, KeysThatHaveTheirShareOfThePlacesDoNotMakeWayForEachOther) {
  World world(small, {.sequences_max = 4});
  for (int request = 0; request < 12; ++request) {
    const std::string key = "key" + std::to_string(request % 3);
    world.submit({.key = key, .prompt = prompt(4, request), .tokens_max = 12});
  }
  world.run();
  EXPECT_LE(world.batch.counts().preemptions, 4) << "of hundreds of turns";
}

TEST(Batch, WhoFitsPassesALongPromptForWhichThereIsNoRoomYet) {
  Limits tight = small;
  tight.blocks = 16;
  World world(tight);
  const auto first = world.submit({.key = "first", .prompt = prompt(4), .tokens_max = 24});
  world.step();
  const auto large = world.submit({.key = "large", .prompt = prompt(60, 9), .tokens_max = 4});
  const auto guest = world.submit({.key = "guest", .prompt = prompt(4, 20), .tokens_max = 4});
  while (!world.finish.contains({guest, 0})) {
    ASSERT_TRUE(world.step());
    ASSERT_FALSE(world.finish.contains({first, 0})) << "there are blocks and places for it";
  }
  world.run();
  EXPECT_EQ(world.finish.at({large, 0}), Finish::length);
}

TEST(Batch, ALongRequestIsNotPassedForEver) {
  Limits tight = small;
  tight.blocks = 16;
  World world(tight, {.passing_steps = 10});
  world.submit({.key = "small", .prompt = prompt(4), .tokens_max = 20});
  world.step();
  const auto large = world.submit({.key = "large", .prompt = prompt(56, 9), .tokens_max = 4});
  int steps = 0;
  while (!world.finish.contains({large, 0})) {
    world.submit(
        {.key = "small" + std::to_string(steps % 3), .prompt = prompt(4, steps % 40), .tokens_max = 20});
    ASSERT_TRUE(world.step());
    ASSERT_LT(++steps, 200) << "small ones keep coming, and it waits";
  }
  world.run();
}

TEST(Batch, GuessesMakeFewerSteps) {
  World plain;
  plain.submit({.prompt = prompt(6), .tokens_max = 120});
  plain.run();
  World guessing(small, {.drafts_max = 4});
  guessing.submit({.prompt = prompt(6), .tokens_max = 120});
  guessing.run();
  EXPECT_EQ(plain.tokens, guessing.tokens);
  EXPECT_GT(guessing.batch.counts().accepted_tokens, 0);
  EXPECT_LT(guessing.toy.steps, plain.toy.steps);
}

// Lets tokens below a number come, and ends after so many of them.
class Countdown final : public Guide {
 public:
  Countdown(Token below, State count)
      : below_(below), count_(count), mask_{(std::uint64_t{1} << below) - 1} {}
  State start() override { return count_; }
  std::span<const std::uint64_t> allowed(State) override { return mask_; }
  State next(State state, Token token) override { return token < below_ ? state - 1 : dead; }
  bool ended(State state) override { return state == 0; }

 private:
  Token below_;
  State count_;
  std::vector<std::uint64_t> mask_;
};

TEST(Batch, AGuideSaysWhatMayComeAndWhenItIsOver) {
  std::map<SequenceId, std::vector<Token>> first;
  for (const std::int32_t drafts : {0, 4}) {
    World world(small, {.drafts_max = drafts});
    const auto id = world.submit({.prompt = prompt(30),
                                  .tokens_max = 90,
                                  .sampling = {.temperature = 0.5F},
                                  .guide = std::make_shared<Countdown>(6, 60)});
    world.run();
    const auto& tokens = world.tokens[(SequenceId{id, 0})];
    EXPECT_EQ(tokens.size(), 60U);
    for (const Token token : tokens) EXPECT_LT(token, 6);
    EXPECT_EQ(world.finish[(SequenceId{id, 0})], Finish::stop);
    if (drafts == 0) first = world.tokens;
    EXPECT_EQ(world.tokens, first);
  }
}

// The tokens of a circle of four, each in its turn.
class Circle final : public Guide {
 public:
  State start() override { return 0; }
  std::span<const std::uint64_t> allowed(State state) override {
    mask_ = {std::uint64_t{1} << at(10 + state)};
    return mask_;
  }
  State next(State state, Token token) override { return token == 10 + state ? (state + 1) % 4 : dead; }
  bool ended(State) override { return false; }

 private:
  std::vector<std::uint64_t> mask_;
};

TEST(Batch, AGuideIsAheadWithTheGuesses) {
  World world(small, {.drafts_max = 4});
  const auto id = world.submit({.prompt = prompt(6), .tokens_max = 80, .guide = std::make_shared<Circle>()});
  world.run();
  const auto& tokens = world.tokens[(SequenceId{id, 0})];
  ASSERT_EQ(tokens.size(), 80U);
  for (std::size_t nth = 0; nth < tokens.size(); ++nth)
    EXPECT_EQ(tokens[nth], static_cast<Token>(10 + nth % 4));
  EXPECT_GT(world.batch.counts().accepted_tokens, 40) << "such a text is easily guessed";
}

// A circle to which every state is new, as often as it is asked for; a mask is known until the next one is.
class Laborious final : public Guide {
 public:
  State start() override { return 0; }
  std::span<const std::uint64_t> allowed(State state) override {
    if (!knows(state)) ++work_;
    known_ = state;
    mask_ = {std::uint64_t{1} << at(10 + state % 4)};
    return mask_;
  }
  bool knows(State state) override { return state == known_; }
  std::uint64_t work() const override { return work_; }
  State next(State state, Token token) override { return token == 10 + state % 4 ? state + 1 : dead; }
  bool ended(State) override { return false; }

 private:
  std::uint64_t work_ = 0;
  State known_ = -1;
  std::vector<std::uint64_t> mask_;
};

TEST(Batch, GuidesThatHaveMuchToDoLetOthersGoOn) {
  World world(small, {.step_guide_work_max = 1});
  const auto free = world.submit({.key = "a", .prompt = prompt(4), .tokens_max = 60});
  std::vector<RequestId> guided;
  for (Token nth = 0; nth < 3; ++nth)
    guided.push_back(world.submit(
        {.key = "b", .prompt = prompt(4, nth), .tokens_max = 12, .guide = std::make_shared<Laborious>()}));
  for (int step = 0; step < 4; ++step) world.step();  // all are in
  const auto count = [&](RequestId id) { return world.tokens[(SequenceId{id, 0})].size(); };
  for (int step = 0; step < 12; ++step) {
    const std::size_t free_before = count(free);
    const std::size_t before = count(guided[0]) + count(guided[1]) + count(guided[2]);
    world.step();
    EXPECT_EQ(count(free), free_before + 1) << "it waits for nobody";
    EXPECT_EQ(count(guided[0]) + count(guided[1]) + count(guided[2]), before + 1) << "each in its turn";
  }
  EXPECT_LE(count(guided[0]), count(guided[2]) + 2) << "and nobody goes short";
  world.run();
  for (const RequestId id : guided) {
    ASSERT_EQ(count(id), 12U);
    for (std::size_t nth = 0; nth < 12; ++nth)
      EXPECT_EQ(world.tokens[(SequenceId{id, 0})][nth], static_cast<Token>(10 + nth % 4));
  }
}

// It came true, and yet there is nothing that was chosen behind it: its last token is still to be computed.
TEST(Batch, AGuessThatAGuideHasNoTimeForIsComputedAgain) {
  World world(small, {.drafts_max = 4, .step_guide_work_max = 1});
  const auto id =
      world.submit({.prompt = prompt(4), .tokens_max = 60, .guide = std::make_shared<Laborious>()});
  world.run();
  const auto& tokens = world.tokens[(SequenceId{id, 0})];
  ASSERT_EQ(tokens.size(), 60U);
  for (std::size_t nth = 0; nth < tokens.size(); ++nth)
    EXPECT_EQ(tokens[nth], static_cast<Token>(10 + nth % 4));
  EXPECT_GT(world.batch.counts().drafted_tokens, 0);
}

// A circle whose states get other names in every step; one that nobody said was held is none any more.
class Renaming final : public Guide {
 public:
  State start() override { return first_; }
  std::span<const std::uint64_t> allowed(State state) override {
    mask_ = {place(state) < 4 ? std::uint64_t{1} << at(10 + place(state)) : 0};
    return mask_;
  }
  State next(State state, Token token) override {
    return token == 10 + place(state) ? first_ + (place(state) + 1) % 4 : dead;
  }
  bool ended(State) override { return false; }
  bool is_crowded() override { return true; }
  void forget_others(std::span<State* const> held) override {
    for (State* const state : held) *state = first_ + 4 + place(*state);
    first_ += 4;
    ++times_forgotten;
  }

  int times_forgotten = 0;

 private:
  State place(State state) const { return state >= first_ ? state - first_ : 4; }

  State first_ = 0;
  std::vector<std::uint64_t> mask_;
};

TEST(Batch, AGuideForgetsAllButTheStatesOfItsAnswers) {
  for (const std::int32_t drafts : {0, 4}) {
    World world(small, {.drafts_max = drafts});
    const auto guide = std::make_shared<Renaming>();
    std::vector<RequestId> ids;
    for (const std::size_t size : {6U, 30U})
      ids.push_back(world.submit({.prompt = prompt(size), .tokens_max = 40, .answers = 3, .guide = guide}));
    world.run();
    EXPECT_GT(guide->times_forgotten, 5);
    for (const RequestId id : ids) {
      for (std::int32_t answer = 0; answer < 3; ++answer) {
        const auto& tokens = world.tokens[(SequenceId{id, answer})];
        ASSERT_EQ(tokens.size(), 40U);
        for (std::size_t nth = 0; nth < tokens.size(); ++nth)
          EXPECT_EQ(tokens[nth], static_cast<Token>(10 + nth % 4));
      }
    }
  }
}

// A circle that comes to its bounds after some tokens.
class Bounded final : public Guide {
 public:
  explicit Bounded(bool when_read) : when_read_(when_read) {}
  State start() override { return 0; }
  std::span<const std::uint64_t> allowed(State state) override {
    mask_ = {state < 5 ? std::uint64_t{1} << 10U : 0};
    return mask_;
  }
  State next(State state, Token) override { return when_read_ && state == 4 ? beyond : state + 1; }
  bool ended(State) override { return false; }
  bool is_beyond(State state) override { return state == beyond || state >= 5; }

 private:
  bool when_read_;
  std::vector<std::uint64_t> mask_;
};

TEST(Batch, AnAnswerThatItsGuideCannotFollowHasFailedAndIsNotWhole) {
  for (const bool when_read : {false, true}) {
    for (const std::int32_t drafts : {0, 4}) {
      World world(small, {.drafts_max = drafts});
      const auto id = world.submit(
          {.prompt = prompt(6), .tokens_max = 40, .guide = std::make_shared<Bounded>(when_read)});
      world.run();
      EXPECT_EQ(world.tokens[(SequenceId{id, 0})].size(), 5U);
      EXPECT_EQ(world.finish[(SequenceId{id, 0})], Finish::failed);
    }
  }
}

// Whatever is asked of the model, and whoever is computed beside it.
TEST(Batch, AnAnswerThatIsNoNumberHasFailedAndTheOthersGoOn) {
  constexpr Token bad = 38;
  std::vector<Token> broken = prompt(9, 1);
  broken[4] = bad;
  std::vector<Request> asked{{.prompt = broken, .tokens_max = 20},
                             {.prompt = broken, .tokens_max = 20, .answers = 2},
                             {.prompt = broken, .tokens_max = 20, .guide = std::make_shared<Circle>()},
                             {.prompt = broken, .tokens_max = 20, .prompt_logprobs = true},
                             {.prompt = broken, .tokens_max = 1, .pooling = Pooling::last},
                             {.prompt = broken, .tokens_max = 1, .pooling = Pooling::mean}};
  asked[0].sampling.temperature = 1;
  asked[3].sampling.logprobs = 2;
  const Request fine{.prompt = prompt(8, 2), .tokens_max = 20};
  World alone;
  const auto expected = alone.submit(fine);
  alone.run();
  for (const std::int32_t drafts : {0, 4}) {
    World world(small, {.drafts_max = drafts});
    world.toy.breaks = bad;
    const auto first = world.submit(fine);
    for (const Request& request : asked) world.submit(request);
    world.run();
    for (const auto& [id, finish] : world.finish) {
      if (id.request == first) continue;
      EXPECT_EQ(finish, Finish::failed) << id.request.text();
      EXPECT_TRUE(world.tokens[id].empty()) << id.request.text();
      EXPECT_NE(world.problem[id].find("no number"), std::string::npos) << world.problem[id];
    }
    EXPECT_EQ(world.finish.size(), asked.size() + 2) << "two answers to one of them";
    EXPECT_EQ((world.tokens[{first, 0}]), (alone.tokens[{expected, 0}]));
    EXPECT_EQ(world.batch.counts().blocks_used, 0);
  }
}

// A sum may be no number where no token of the answer says so.
TEST(Batch, AVectorThatIsNoNumberHasFailed) {
  for (const Pooling pooling : {Pooling::last, Pooling::mean}) {
    World world;
    const auto id = world.submit({.prompt = prompt(3), .tokens_max = 1, .pooling = pooling});
    std::vector<Chosen> chosen(world.batch.plan().choices.size());
    chosen.back().hidden = {1, std::numeric_limits<float>::infinity(), 1};
    chosen.back().hidden_sum = {1, std::numeric_limits<double>::max(), 1};
    world.take(world.batch.take(chosen));
    EXPECT_EQ(world.finish[(SequenceId{id, 0})], Finish::failed);
  }
}

TEST(Batch, GuessesStayWithinTheAnswer) {
  Limits tight = small;
  tight.context = 64;
  tight.blocks = 16;
  for (std::int32_t tokens_max = 50; tokens_max <= 60; ++tokens_max) {
    World world(tight, {.drafts_max = 8});
    const auto id =
        world.submit({.prompt = prompt(4), .tokens_max = tokens_max, .guide = std::make_shared<Circle>()});
    world.run();
    EXPECT_EQ(world.tokens[(SequenceId{id, 0})].size(), at(tokens_max));
    EXPECT_EQ(world.batch.counts().drafted_tokens, world.batch.counts().accepted_tokens)
        << "what is guessed behind the end is for nothing";
  }
}

// One answer has more blocks than it needs, from a guess that was wrong, and the other needs one.
TEST(Batch, BlocksOfWrongGuessesAreNobodysRoomAhead) {
  for (const bool has_one : {false, true}) {
    Limits limits = small;
    limits.block_tokens = 1;
    limits.blocks = has_one ? 20 : 19;
    Batch batch(limits, {.drafts_max = 3, .keeps_prefixes = false}, toy_bytes);
    ASSERT_TRUE(batch.submit(RequestId(1), {.prompt = {1, 2, 3, 4, 5, 6, 1, 2}, .tokens_max = 9}));
    ASSERT_TRUE(batch.submit(RequestId(2), {.prompt = {11, 12, 13, 14, 15}, .tokens_max = 9}));
    const auto step = [&](const std::vector<Token>& tokens) {
      ASSERT_EQ(batch.plan().choices.size(), tokens.size());
      std::vector<Chosen> chosen(tokens.size());
      for (std::size_t nth = 0; nth < tokens.size(); ++nth) chosen[nth].token = tokens[nth];
      static_cast<void>(batch.take(chosen));
    };
    step({3, 20});               // behind 1, 2, 3 came 4, 5, 6
    step({30, 31, 32, 33, 21});  // and does not come again
    ASSERT_EQ(batch.counts().drafted_tokens, 3);
    ASSERT_EQ(batch.plan().choices.size(), 2U);
    EXPECT_EQ(batch.counts().blocks_used, 19);
    EXPECT_EQ(batch.plan_ahead() != nullptr, has_one);
  }
}

}  // namespace
}  // namespace tutti::serve
