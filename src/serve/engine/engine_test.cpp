#include "serve/engine/engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "base/index.hpp"
#include "serve/batch/toy_test.hpp"

namespace tutti::serve {
namespace {

const Limits limits_of_toys{.vocabulary = 40,
                            .context = 400,
                            .block_tokens = 4,
                            .blocks = 64,
                            .step_tokens_max = 32,
                            .step_rows_max = 16};

class ToyModel final : public Model {
 public:
  explicit ToyModel(std::shared_ptr<std::atomic<int>> failures = nullptr)
      : toy_(limits_of_toys), failures_(std::move(failures)) {}
  const Limits& limits() const override { return toy_.limits(); }
  Result<> step(std::span<const Chunk> chunks) override {
    if (failures_ && failures_->fetch_sub(1) > 0) return failed("the device is gone");
    toy_.step(chunks);
    return {};
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    return toy_.choose(choices);
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return toy_.logits(row); }
  std::string describe() const override { return "a toy"; }

 private:
  Toy toy_;
  std::shared_ptr<std::atomic<int>> failures_;
};

// Gives a step back only when the next has been given, or nobody gives one.
class AheadModel final : public Model {
 public:
  explicit AheadModel(std::shared_ptr<std::atomic<int>> ahead, int fails_at = -1)
      : toy_(limits_of_toys), ahead_(std::move(ahead)), fails_at_(fails_at) {}
  const Limits& limits() const override { return toy_.limits(); }
  Result<> step(std::span<const Chunk> chunks) override {
    if (!answers_.empty()) ++*ahead_;
    toy_.step(chunks);
    return {};
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice>) override { return failed("it is asked ahead"); }
  bool works_ahead() const override { return true; }
  Result<> ask(std::span<const Choice> choices) override {
    EXPECT_LT(answers_.size(), 2U);
    answers_.push_back(toy_.choose(choices));
    return {};
  }
  Result<std::vector<Chosen>> answer() override {
    if (answers_.empty()) return failed("nothing was asked");
    auto first = std::move(answers_.front());
    answers_.pop_front();
    if (fails_at_ >= 0 && ahead_->load() >= fails_at_) {
      fails_at_ = -1;
      return failed("the device is gone");
    }
    return first;
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return toy_.logits(row); }
  std::string describe() const override { return "a toy that is ahead"; }

 private:
  Toy toy_;
  std::shared_ptr<std::atomic<int>> ahead_;
  int fails_at_;
  std::deque<std::vector<Chosen>> answers_;
};

// What came of the answers of one request.
struct Answers {
  std::map<std::int32_t, std::vector<Token>> tokens;
  std::map<std::int32_t, Finish> finish;
  std::string problem;
  std::promise<void> done;

  Engine::Receive receiver(std::size_t count) {
    return [this, count](Piece&& piece) {
      auto& own = tokens[piece.answer];
      own.insert(own.end(), piece.tokens.begin(), piece.tokens.end());
      if (!piece.problem.empty()) problem = piece.problem;
      if (piece.finish) finish[piece.answer] = *piece.finish;
      if (finish.size() == count) done.set_value();
    };
  }
  void wait() { done.get_future().wait(); }
};

Request request(Token first, std::int32_t tokens_max) {
  Request made{
      .key = "key" + std::to_string(first % 3), .prompt = {first, 1, 2, 3, 4, 5}, .tokens_max = tokens_max};
  made.sampling = {.temperature = 0.7F, .seed = at(first)};
  return made;
}

void expect_the_same_ahead(const BatchSettings& settings) {
  const auto ahead = std::make_shared<std::atomic<int>>(0);
  Engine one(std::make_unique<ToyModel>(), {.sequences_max = 1}, toy_bytes);
  Engine other(std::make_unique<AheadModel>(ahead), settings, toy_bytes);
  std::map<Token, Answers> expected;
  std::map<Token, Answers> got;
  for (Token first = 0; first < 24; ++first) {
    Request asked = request(first, 5 + first);
    if (first % 5 == 0) asked.stop_ids = {3, 4, 9};
    ASSERT_TRUE(one.submit(asked, expected[first].receiver(1)).ok());
    ASSERT_TRUE(other.submit(asked, got[first].receiver(1)).ok());
  }
  for (Token first = 0; first < 24; ++first) {
    expected[first].wait();
    got[first].wait();
    EXPECT_EQ(got[first].tokens, expected[first].tokens) << first;
    EXPECT_EQ(got[first].finish, expected[first].finish) << first;
  }
  EXPECT_GT(ahead->load(), 0);
  EXPECT_EQ(other.counts().batch.accepted_tokens > 0, settings.drafts_max > 0);
  EXPECT_EQ(other.counts().batch.blocks_used, 0);
}

TEST(Engine, AModelThatWorksAheadAnswersTheSame) { expect_the_same_ahead({}); }

TEST(Engine, AModelWorksAheadWhereNobodyHasAGuess) {
  expect_the_same_ahead({.sequences_max = 2, .drafts_max = 3});
}

// The step that was given meanwhile is nobody's any more, and its answer is not taken for another's.
TEST(Engine, AModelThatFailsWhileItIsAheadIsUsedAgain) {
  const auto ahead = std::make_shared<std::atomic<int>>(0);
  Engine engine(std::make_unique<AheadModel>(ahead, 3), {}, toy_bytes);
  Answers lost;
  ASSERT_TRUE(engine.submit(request(1, 30), lost.receiver(1)).ok());
  lost.wait();
  EXPECT_EQ(lost.finish[0], Finish::failed);
  Engine reference(std::make_unique<ToyModel>(), {}, toy_bytes);
  Answers expected;
  Answers got;
  ASSERT_TRUE(reference.submit(request(2, 30), expected.receiver(1)).ok());
  ASSERT_TRUE(engine.submit(request(2, 30), got.receiver(1)).ok());
  expected.wait();
  got.wait();
  EXPECT_EQ(got.tokens, expected.tokens);
}

TEST(Engine, AnswersManyAtOnceAsEachAlone) {
  std::map<Token, std::vector<Token>> alone;
  {
    Engine engine(std::make_unique<ToyModel>(), {.sequences_max = 1, .keeps_prefixes = false}, toy_bytes);
    for (Token first = 0; first < 24; ++first) {
      Answers answers;
      ASSERT_TRUE(engine.submit(request(first, 20), answers.receiver(1)).ok());
      answers.wait();
      alone[first] = answers.tokens[0];
    }
  }
  Engine engine(std::make_unique<ToyModel>(), {.drafts_max = 3}, toy_bytes);
  std::vector<Answers> together(24);
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (Token first = client; first < 24; first += 4)
        EXPECT_TRUE(engine.submit(request(first, 20), together[at(first)].receiver(1)).ok());
    });
  }
  for (auto& client : clients) client.join();
  engine.drain();
  for (Token first = 0; first < 24; ++first) EXPECT_EQ(together[at(first)].tokens[0], alone[first]);
  const auto counts = engine.counts();
  EXPECT_TRUE(counts.draining);
  EXPECT_FALSE(engine.submit(request(0, 1), [](Piece&&) {}).ok()) << "it drains";
}

// Also where it is over by then, and there is nothing to compute.
TEST(Engine, AnAnswerThatAnotherOneHasBegunGoesOn) {
  const Request asked = request(3, 20);
  Engine first(std::make_unique<ToyModel>(), {}, toy_bytes);
  Answers whole;
  ASSERT_TRUE(first.submit(asked, whole.receiver(1)).ok());
  whole.wait();
  const std::vector<Token>& all = whole.tokens[0];
  ASSERT_EQ(all.size(), 20U);
  const auto ahead = std::make_shared<std::atomic<int>>(0);
  Engine other(std::make_unique<AheadModel>(ahead), {}, toy_bytes);
  for (const std::size_t cut : {20U, 7U, 19U}) {
    Request rest = asked;
    rest.resumed.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(cut));
    const BatchCounts before = other.counts().batch;
    Answers answers;
    ASSERT_TRUE(other.submit(rest, answers.receiver(1)).ok());
    answers.wait();
    rest.resumed.insert(rest.resumed.end(), answers.tokens[0].begin(), answers.tokens[0].end());
    EXPECT_EQ(rest.resumed, all) << cut;
    EXPECT_EQ(answers.finish[0], Finish::length);
    const BatchCounts after = other.counts().batch;
    EXPECT_EQ(at(after.generated_tokens - before.generated_tokens), 20 - cut);
    EXPECT_EQ(after.finished, before.finished + 1);
    if (cut == 20) {
      EXPECT_EQ(after.steps, 0);
    }
  }
  other.drain();
}

TEST(Engine, CancelledFromAReceiverItStops) {
  Engine engine(std::make_unique<ToyModel>(), {}, toy_bytes);
  std::size_t tokens = 0;
  std::promise<Finish> finished;
  const auto submitted = engine.submit(request(1, 200), [&](Piece&& piece) {
    tokens += piece.tokens.size();
    if (tokens == 5) engine.cancel(piece.request);
    if (piece.finish) finished.set_value(*piece.finish);
  });
  ASSERT_TRUE(submitted.ok());
  EXPECT_EQ(finished.get_future().get(), Finish::cancelled);
  EXPECT_LE(tokens, 6U);
  engine.cancel(*submitted);  // once more does no harm
  engine.drain();
  EXPECT_EQ(engine.counts().batch.blocks_used, 0);
}

TEST(Engine, RefusesWhatCanNeverBeAnswered) {
  Engine engine(std::make_unique<ToyModel>(), {}, toy_bytes);
  const auto refused = engine.submit(request(1, 400), [](Piece&&) { ADD_FAILURE(); });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
}

TEST(Engine, RefusesMoreThanItCanKeep) {
  Engine engine(std::make_unique<ToyModel>(), {.requests_max = 1}, toy_bytes);
  // The receiver of the first keeps the engine's thread until the second was tried.
  std::promise<void> tried;
  auto go_on = tried.get_future().share();
  Answers answers;
  auto receive = answers.receiver(1);
  ASSERT_TRUE(engine
                  .submit(request(1, 3),
                          [&, go_on](Piece&& piece) {
                            go_on.wait();
                            receive(std::move(piece));
                          })
                  .ok());
  const auto refused = engine.submit(request(2, 3), [](Piece&&) { ADD_FAILURE(); });
  tried.set_value();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::failed);
  answers.wait();
}

// Whoever hears of an end may come with the next one at once.
TEST(Engine, APlaceIsFreeWhenItsEndIsTold) {
  Engine engine(std::make_unique<ToyModel>(), {.requests_max = 1}, toy_bytes);
  std::promise<bool> taken;
  Answers second;
  ASSERT_TRUE(engine
                  .submit(request(1, 3),
                          [&](Piece&& piece) {
                            if (!piece.finish) return;
                            taken.set_value(engine.submit(request(2, 3), second.receiver(1)).ok());
                          })
                  .ok());
  ASSERT_TRUE(taken.get_future().get());
  engine.drain();
  EXPECT_EQ(second.finish[0], Finish::length);
}

// However much the first one asks for.
TEST(Engine, WhoHasTheMostIsRefusedBeforeOthersAre) {
  Engine engine(std::make_unique<ToyModel>(), {.requests_max = 8}, toy_bytes);
  std::promise<void> tried;
  const auto go_on = tried.get_future().share();
  const auto ask = [&](const std::string& key) {
    Request asked = request(1, 3);
    asked.key = key;
    return engine.submit(std::move(asked), [go_on](Piece&&) { go_on.wait(); });
  };
  int taken = 0;
  while (ask("greedy")) ++taken;
  EXPECT_EQ(taken, 6);
  EXPECT_EQ(ask("greedy").error().text(), "6 requests wait already, 6 of them from your address");
  EXPECT_TRUE(ask("other").ok());
  tried.set_value();
  engine.drain();
}

TEST(Engine, NobodyKnowsTheSaltOfItsPrefixCache) {
  const std::uint64_t one = salted({}).salt;
  EXPECT_NE(one, 0U);
  EXPECT_NE(salted({}).salt, one);
  EXPECT_EQ(salted({.salt = 7}).salt, 7U) << "tests choose theirs";
}

TEST(Engine, AModelThatFailsEndsWhatRanAndGoesOn) {
  Engine engine(std::make_unique<ToyModel>(std::make_shared<std::atomic<int>>(1)), {}, toy_bytes);
  Answers first;
  auto two = request(1, 4);
  two.answers = 2;
  ASSERT_TRUE(engine.submit(std::move(two), first.receiver(2)).ok());
  first.wait();
  EXPECT_EQ(first.finish[0], Finish::failed);
  EXPECT_EQ(first.finish[1], Finish::failed);
  EXPECT_EQ(first.problem, "the device is gone");
  EXPECT_TRUE(engine.counts().failing);
  EXPECT_FALSE(engine.counts(std::chrono::steady_clock::now() + failing_time).failing)
      << "it is forgotten, because nobody may come who shows that it can";
  Answers second;
  ASSERT_TRUE(engine.submit(request(1, 4), second.receiver(1)).ok());
  second.wait();
  EXPECT_EQ(second.finish[0], Finish::length);
  engine.drain();
  EXPECT_EQ(engine.counts().model_failures, 1);
  EXPECT_FALSE(engine.counts().failing);
}

// A model that is gone as soon as somebody says so, and others that stand in for it.
struct Mortality {
  std::atomic<bool> is_dead = false;
  std::atomic<int> refusals = 0;  // before there is another one
  std::atomic<int> opened = 0;
};
class Mortal final : public Model {
 public:
  explicit Mortal(std::shared_ptr<Mortality> fate) : fate_(std::move(fate)) {}
  const Limits& limits() const override { return toy_.limits(); }
  Result<> step(std::span<const Chunk> chunks) override { return toy_.step(chunks); }
  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    if (fate_->is_dead) return failed("it is dead");
    return toy_.choose(choices);
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return toy_.logits(row); }
  bool is_lost() override { return fate_->is_dead; }
  std::string why_lost() const override { return "it is dead"; }
  std::string describe() const override { return "a mortal"; }

 private:
  ToyModel toy_;
  std::shared_ptr<Mortality> fate_;
};
Engine::Reopen reopening(const std::shared_ptr<Mortality>& fate) {
  return [fate]() -> Result<std::unique_ptr<Model>> {
    ++fate->opened;
    if (fate->refusals.fetch_sub(1) > 0) return failed("not yet");
    fate->is_dead = false;
    return std::unique_ptr<Model>(std::make_unique<Mortal>(fate));
  };
}

TEST(Engine, ALostModelIsOpenedAgainAndNothingOfTheOldOneIsFound) {
  const auto fate = std::make_shared<Mortality>();
  Engine engine(std::make_unique<Mortal>(fate), {.sequences_max = 1}, toy_bytes, reopening(fate));
  Answers before;
  ASSERT_TRUE(engine.submit(request(1, 4), before.receiver(1)).ok());
  before.wait();
  fate->refusals = 1;
  // One runs and one waits when it dies.
  Answers runs;
  Answers waits;
  auto endless = request(1, 200);
  ASSERT_TRUE(engine
                  .submit(std::move(endless),
                          [&, receive = runs.receiver(1)](Piece&& piece) {
                            if (!fate->is_dead) {
                              EXPECT_TRUE(engine.submit(request(2, 4), waits.receiver(1)).ok());
                              fate->is_dead = true;
                            }
                            receive(std::move(piece));
                          })
                  .ok());
  runs.wait();
  waits.wait();
  EXPECT_EQ(runs.finish[0], Finish::lost);
  EXPECT_EQ(waits.finish[0], Finish::lost);
  // Asked again until it is there: the same answer as before, of which nothing is in the blocks.
  Answers after;
  while (!engine.submit(request(1, 4), after.receiver(1)).ok()) std::this_thread::yield();
  after.wait();
  EXPECT_EQ(after.tokens[0], before.tokens[0]);
  EXPECT_EQ(fate->opened, 2);
  EXPECT_EQ(engine.counts().model_losses, 1);
  EXPECT_FALSE(engine.counts().away);
}

TEST(Engine, AModelThatIsLostWhileNobodyAsksIsMissed) {
  const auto fate = std::make_shared<Mortality>();
  Engine engine(std::make_unique<Mortal>(fate), {}, toy_bytes, reopening(fate));
  fate->is_dead = true;
  while (fate->opened == 0 || engine.counts().away) std::this_thread::yield();
  EXPECT_EQ(engine.counts().model_losses, 1);
}

TEST(Engine, AModelThatNobodyOpensAgainIsLostForGoodAndEverybodyIsToldWhy) {
  for (const bool is_asked : {false, true}) {
    const auto fate = std::make_shared<Mortality>();
    std::atomic<int> times = 0;
    std::promise<std::string> gone;
    Engine engine(std::make_unique<Mortal>(fate), {}, toy_bytes, nullptr, [&](const Error& why) {
      if (++times == 1) gone.set_value(why.text());
    });
    Answers answers;
    if (is_asked) {
      ASSERT_TRUE(engine
                      .submit(request(1, 200),
                              [&, receive = answers.receiver(1)](Piece&& piece) {
                                fate->is_dead = true;
                                receive(std::move(piece));
                              })
                      .ok());
      answers.wait();
      EXPECT_EQ(answers.finish[0], Finish::lost);
      EXPECT_EQ(answers.problem, "it is dead");
    }
    fate->is_dead = true;
    EXPECT_EQ(gone.get_future().get(), "it is dead");
    EXPECT_TRUE(engine.counts().gone);
    const auto refused = engine.submit(request(1, 4), [](Piece&&) {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::failed);
    engine.drain();
    EXPECT_EQ(times, 1);
  }
}

// Does not come back from a step until it is abandoned.
class Stuck final : public Model {
 public:
  explicit Stuck(std::promise<void>& steps) : steps_(steps) {}
  const Limits& limits() const override { return toy_.limits(); }
  Result<> step(std::span<const Chunk>) override {
    steps_.set_value();
    abandoned_.get_future().wait();
    is_lost_ = true;
    return failed("it was abandoned");
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice>) override { return failed("it was abandoned"); }
  Result<std::vector<float>> logits(std::int32_t row) override { return toy_.logits(row); }
  bool is_lost() override { return is_lost_; }
  void abandon() override { abandoned_.set_value(); }
  std::string describe() const override { return "a stuck one"; }

 private:
  ToyModel toy_;
  std::promise<void>& steps_;
  std::promise<void> abandoned_;
  bool is_lost_ = false;
};

TEST(Engine, EndsThoughItsModelDoesNotComeBackFromAStep) {
  std::promise<void> steps;
  std::atomic<bool> is_told_gone = false;
  Answers answers;
  {
    Engine engine(std::make_unique<Stuck>(steps), {}, toy_bytes, nullptr,
                  [&](const Error&) { is_told_gone = true; });
    ASSERT_TRUE(engine.submit(request(1, 4), answers.receiver(1)).ok());
    steps.get_future().wait();
  }
  EXPECT_EQ(answers.finish.size(), 1U);
  EXPECT_FALSE(is_told_gone) << "it was meant to end";
}

TEST(Engine, StopsWhileItsModelIsAway) {
  const auto fate = std::make_shared<Mortality>();
  fate->refusals = 1'000'000;
  Engine engine(std::make_unique<Mortal>(fate), {}, toy_bytes, reopening(fate));
  fate->is_dead = true;
  while (!engine.counts().away) std::this_thread::yield();
  const auto refused = engine.submit(request(1, 4), [](Piece&&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::failed);
  engine.drain();
}

TEST(Engine, WhatIsNotFinishedAtTheEndIsToldSo) {
  Answers answers;
  {
    Engine engine(std::make_unique<ToyModel>(), {}, toy_bytes);
    auto endless = request(1, 390);
    endless.prompt = {1};
    endless.tokens_max = 250;
    endless.answers = 5;
    ASSERT_TRUE(engine.submit(std::move(endless), answers.receiver(5)).ok());
  }
  answers.wait();
  EXPECT_EQ(answers.finish.size(), 5U);
}

}  // namespace
}  // namespace tutti::serve
