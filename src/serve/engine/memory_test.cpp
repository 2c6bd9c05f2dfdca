// What becomes of answers when there is no memory for them.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <new>
#include <thread>

#include "base/scarcity/scarcity.hpp"
#include "serve/batch/toy_test.hpp"
#include "serve/engine/engine.hpp"
#include "serve/program/within_memory.hpp"

namespace tutti::serve {
namespace {

const Limits limits_of_hungry{.vocabulary = 40,
                              .context = 4000,
                              .block_tokens = 16,
                              .blocks = 500,
                              .step_tokens_max = 512,
                              .step_rows_max = 16};

// In which of its calls there is no memory, the next time.
enum class Want { none, step, choose };

class Hungry final : public Model {
 public:
  explicit Hungry(std::shared_ptr<std::atomic<Want>> want, bool works_ahead)
      : toy_(limits_of_hungry), want_(std::move(want)), works_ahead_(works_ahead) {}
  const Limits& limits() const override { return toy_.limits(); }
  Result<> step(std::span<const Chunk> chunks) override {
    hunger(Want::step);
    toy_.step(chunks);
    return {};
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    hunger(Want::choose);
    return toy_.choose(choices);
  }
  bool works_ahead() const override { return works_ahead_; }
  Result<> ask(std::span<const Choice> choices) override {
    hunger(Want::choose);
    answers_.push_back(toy_.choose(choices));
    return {};
  }
  Result<std::vector<Chosen>> answer() override {
    if (answers_.empty()) return failed("nothing was asked");
    auto first = std::move(answers_.front());
    answers_.erase(answers_.begin());
    return first;
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return toy_.logits(row); }
  std::string describe() const override { return "a hungry one"; }

 private:
  void hunger(Want here) {
    Want wanted = here;
    if (want_->compare_exchange_strong(wanted, Want::none)) throw std::bad_alloc();
  }

  Toy toy_;
  const std::shared_ptr<std::atomic<Want>> want_;
  const bool works_ahead_;
  std::vector<std::vector<Chosen>> answers_;
};

// What one answer came to.
struct Outcome {
  std::vector<Token> tokens;
  Finish finish = Finish::failed;
  std::string problem;
};

class EngineMemory : public testing::Test {
 protected:
  std::future<Outcome> ask(Engine& engine, Request request) {
    auto told = std::make_shared<std::promise<Outcome>>();
    auto outcome = std::make_shared<Outcome>();
    outcome->tokens.reserve(1000);
    const auto submitted = engine.submit(std::move(request), [told, outcome](Piece&& piece) {
      outcome->tokens.insert(outcome->tokens.end(), piece.tokens.begin(), piece.tokens.end());
      if (!piece.finish) return;
      outcome->finish = *piece.finish;
      outcome->problem = std::move(piece.problem);
      told->set_value(std::move(*outcome));
    });
    EXPECT_TRUE(submitted) << submitted.error().text();
    return told->get_future();
  }
  static Request request(Token first, std::int32_t tokens_max) {
    return {.key = "key", .prompt = {first, 1, 2, 3, 4, 5}, .tokens_max = tokens_max};
  }

  std::shared_ptr<std::atomic<Want>> want = std::make_shared<std::atomic<Want>>(Want::none);
};

TEST_F(EngineMemory, AStepForWhichThereIsNoneLosesWhatRanAndTheEngineGoesOn) {
  for (const bool ahead : {false, true}) {
    Engine engine(std::make_unique<Hungry>(want, ahead), {}, toy_bytes);
    const Outcome expected = ask(engine, request(1, 40)).get();
    EXPECT_EQ(expected.finish, Finish::length);
    for (const Want where : {Want::step, Want::choose}) {
      *want = where;
      const Outcome lost = ask(engine, request(1, 40)).get();
      EXPECT_EQ(lost.finish, Finish::lost);
      EXPECT_EQ(lost.problem, no_memory().text());
      EXPECT_TRUE(engine.counts().failing);
      EXPECT_EQ(ask(engine, request(1, 40)).get().tokens, expected.tokens);
    }
    EXPECT_EQ(engine.counts().model_failures, 2);
    EXPECT_FALSE(engine.counts().failing);
    EXPECT_EQ(engine.counts().batch.blocks_used, 0);
  }
}

// In the middle of an answer, too, when a step is ahead of another.
TEST_F(EngineMemory, AnAnswerUnderWayIsLostAndTheNextIsWhole) {
  for (const bool ahead : {false, true}) {
    Engine engine(std::make_unique<Hungry>(want, ahead), {}, toy_bytes);
    const Outcome expected = ask(engine, request(2, 60)).get();
    std::promise<Finish> ended;
    int pieces = 0;
    ASSERT_TRUE(engine.submit(request(1, 200), [&](Piece&& piece) {
      if (++pieces == 5) *want = Want::choose;
      if (piece.finish) ended.set_value(*piece.finish);
    }));
    EXPECT_EQ(ended.get_future().get(), Finish::lost);
    EXPECT_EQ(ask(engine, request(2, 60)).get().tokens, expected.tokens) << "nobody has another's tokens";
  }
}

// A long prompt for which there is no room, beside an answer that needs little.
TEST_F(EngineMemory, ARequestForWhichThereIsNoneIsLostAlone) {
  Engine engine(std::make_unique<Hungry>(want, false), {}, toy_bytes);
  std::promise<void> begun;
  std::promise<Finish> ended;
  std::atomic<bool> ends = false;
  int pieces = 0;
  const auto other = engine.submit(request(1, 100), [&](Piece&& piece) {
    if (++pieces == 1) {
      begun.set_value();
      while (!ends) std::this_thread::yield();  // until the long one has come
    }
    if (piece.finish) ended.set_value(*piece.finish);
  });
  ASSERT_TRUE(other);
  begun.get_future().wait();
  Request large = request(2, 4);
  large.prompt.assign(3000, 7);
  const Request again = large;
  {
    auto lost = ask(engine, std::move(large));
    const Scarcity scarcity(6000);
    ends = true;
    lost.wait();
    EXPECT_EQ(lost.get().finish, Finish::lost);
    EXPECT_EQ(ended.get_future().get(), Finish::length);
  }
  EXPECT_EQ(ask(engine, again).get().finish, Finish::length);
  EXPECT_EQ(engine.counts().model_failures, 0);
  engine.drain();
}

TEST_F(EngineMemory, WhoHasNoneForAPieceIsGivenItAgain) {
  Engine engine(std::make_unique<Hungry>(want, false), {}, toy_bytes);
  const Outcome expected = ask(engine, request(1, 10)).get();
  std::vector<Token> tokens;
  std::promise<void> ended;
  int calls = 0;
  ASSERT_TRUE(engine.submit(request(1, 10), [&](Piece&& piece) {
    if (++calls % 3 != 0) throw std::bad_alloc();
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    if (piece.finish) ended.set_value();
  }));
  ended.get_future().wait();
  EXPECT_EQ(tokens, expected.tokens);
}

// Who leaves while there is none for a moment has left.
TEST_F(EngineMemory, WhatIsCancelledIsCancelledThoughThereIsNone) {
  Engine engine(std::make_unique<Hungry>(want, false), {}, toy_bytes);
  std::promise<void> begun;
  std::promise<Finish> ended;
  std::atomic<bool> goes_on = false;
  int pieces = 0;
  const auto asked = engine.submit(request(1, 3000), [&](Piece&& piece) {
    if (++pieces == 1) {
      begun.set_value();
      while (!goes_on) std::this_thread::yield();  // so that nobody else asks for memory meanwhile
    }
    if (piece.finish) ended.set_value(*piece.finish);
  });
  ASSERT_TRUE(asked);
  begun.get_future().wait();
  {
    const ScarceMoment moment(0);
    engine.cancel(*asked);
    EXPECT_TRUE(moment.has_come());
  }
  goes_on = true;
  EXPECT_EQ(ended.get_future().get(), Finish::cancelled);
}

// Whatever it is that there is no memory for: it has taken no place.
TEST_F(EngineMemory, WhatCannotBeSubmittedHasNotHappened) {
  Engine engine(std::make_unique<Hungry>(want, false), {.requests_max = 1}, toy_bytes);
  int refused = 0;
  for (std::size_t most = 0; most < 600; most += 16) {
    Request asked = request(1, 2);
    asked.key = std::string(100, 'k');
    std::promise<void> ended;
    Engine::Receive receive = [&](Piece&& piece) {
      if (piece.finish) ended.set_value();
    };
    bool is_taken = false;
    try {
      const Scarcity scarcity(most);
      is_taken = engine.submit(std::move(asked), std::move(receive)).ok();
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    if (is_taken) ended.get_future().wait();
  }
  EXPECT_GT(refused, 0);
  // The one place is free, or is so in a moment.
  std::promise<void> ended;
  while (!engine.submit(request(1, 2), [&](Piece&& piece) {
    if (piece.finish) ended.set_value();
  }))
    std::this_thread::yield();
  ended.get_future().wait();
}

}  // namespace
}  // namespace tutti::serve
