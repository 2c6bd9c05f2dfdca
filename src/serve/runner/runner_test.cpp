#include "serve/runner/runner.hpp"

#include <algorithm>
#include <future>
#include <new>
#include <thread>

#include <gtest/gtest.h>

#include "base/scarcity/scarcity.hpp"
#include "serve/program/within_memory.hpp"
#include "serve/runner/toy_program_test.hpp"

namespace tutti::serve {
namespace {

using Answer = Result<std::vector<Tensor>>;

std::vector<Tensor> rows(const std::string& letters) {
  return {{"x", DataType::uint8, {static_cast<std::int64_t>(letters.size())}, letters}};
}

class RunnerTest : public testing::Test {
 protected:
  void start(const RunnerSettings& settings, int lanes = 1) {
    auto made = std::make_unique<ToyProgram>(lanes);
    program = made.get();
    runner = std::make_unique<Runner>(std::move(made), settings);
  }
  std::future<Answer> ask(std::vector<Tensor> inputs, RunId* id = nullptr, const std::string& who = "") {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto submitted = runner->submit(
        std::move(inputs), [promise](Answer&& answer) { promise->set_value(std::move(answer)); }, who);
    EXPECT_TRUE(submitted) << submitted.error().text();
    if (id != nullptr) *id = *submitted;
    return promise->get_future();
  }
  static std::string text(const Answer& answer) {
    return answer ? answer->front().bytes : answer.error().text();
  }

  ToyProgram* program = nullptr;
  std::unique_ptr<Runner> runner;
};

TEST_F(RunnerTest, WhereThereIsNoMemoryTheRequestFailsAndNothingElse) {
  start({.gather = {.rows_max = 8, .delay_max = 0ms}});
  program->shut();
  auto first = ask(rows("H"));
  program->wait_for_runs(1);
  auto second = ask(rows("aH"));
  auto third = ask(rows("d"));
  program->open();
  EXPECT_EQ(first.get().error(), no_memory());
  EXPECT_EQ(second.get().error(), no_memory());
  EXPECT_EQ(text(third.get()), "e") << "it was computed with the one before it, and then alone";
}

// Whatever it is that there is no memory for: it has taken no place, and the next one is answered.
TEST_F(RunnerTest, WhatCannotBeSubmittedForWantOfMemoryHasNotHappened) {
  for (const std::int64_t rows_max : {1, 8}) {
    start({.gather = {.rows_max = rows_max, .delay_max = 0ms}, .requests_max = 1});
    const std::string long_name(100, 'w');
    int refused = 0;
    for (std::size_t most = 0; most < 200; most += 8) {
      auto inputs = rows("a");
      std::promise<Answer> promise;
      Runner::Receive receive = [&](Answer&& answer) { promise.set_value(std::move(answer)); };
      bool is_taken = false;
      try {
        const Scarcity scarcity(most);
        is_taken = runner->submit(std::move(inputs), std::move(receive), long_name).ok();
      } catch (const std::bad_alloc&) {
        ++refused;
      }
      if (is_taken) static_cast<void>(promise.get_future().get());
      EXPECT_EQ(text(ask(rows("a"), nullptr, long_name).get()), "b") << most;
    }
    EXPECT_GT(refused, 0);
    EXPECT_EQ(runner->counts().waiting, 0);
  }
}

TEST_F(RunnerTest, WhoHasNoMemoryForHisAnswerIsToldSo) {
  start({});
  std::promise<Answer> told;
  int times = 0;
  ASSERT_TRUE(runner->submit(rows("a"), [&](Answer&& answer) {
    if (++times < 3) throw std::bad_alloc();
    told.set_value(std::move(answer));
  }));
  EXPECT_EQ(told.get_future().get().error(), no_memory());
  EXPECT_EQ(text(ask(rows("b")).get()), "c") << "the lane goes on";
}

TEST_F(RunnerTest, WhoAsksForLittleDoesNotWaitBehindACrowd) {
  start({});
  program->shut();
  std::vector<std::future<Answer>> crowd;
  for (int nth = 0; nth < 200; ++nth) crowd.push_back(ask(rows("a"), nullptr, "crowd"));
  program->wait_for_runs(1);
  auto guest = ask(rows("bcd"), nullptr, "guest");
  program->open();
  EXPECT_EQ(text(guest.get()), "cde");
  for (auto& each : crowd) EXPECT_EQ(text(each.get()), "b");
  const auto runs = program->runs();
  const auto guests = std::find(runs.begin(), runs.end(), Dimensions{3});
  EXPECT_LE(guests - runs.begin(), 2) << "one of the crowd was computed, and one may have had the turn";
}

// While the only lane is busy, others gather.
TEST_F(RunnerTest, WhatWaitsIsComputedTogetherAndAnsweredApart) {
  start({.gather = {.rows_max = 8, .delay_max = 0ms}});
  program->shut();
  auto first = ask(rows("a"));
  program->wait_for_runs(1);
  auto second = ask(rows("bc"));
  auto third = ask(rows("d"));
  program->open();
  EXPECT_EQ(text(first.get()), "b");
  EXPECT_EQ(text(second.get()), "cd");
  EXPECT_EQ(text(third.get()), "e");
  EXPECT_EQ(program->runs(), (std::vector<Dimensions>{{1}, {3}}));
  const RunnerCounts counts = runner->counts();
  EXPECT_EQ(counts.batches, 2);
  EXPECT_EQ(counts.rows, 4);
  EXPECT_EQ(counts.finished, 3);
  EXPECT_EQ(counts.waiting + counts.running + counts.failed, 0);
}

TEST_F(RunnerTest, AFullBatchDoesNotWaitForTheDelay) {
  start({.gather = {.rows_max = 2, .delay_max = 1h}});
  auto first = ask(rows("a"));
  auto second = ask(rows("b"));
  EXPECT_EQ(text(first.get()), "b");
  EXPECT_EQ(text(second.get()), "c");
}

TEST_F(RunnerTest, OneThatWaitsAloneGoesAfterTheDelay) {
  start({.gather = {.rows_max = 64, .delay_max = 1ms}});
  EXPECT_EQ(text(ask(rows("a")).get()), "b");
}

TEST_F(RunnerTest, WhoIsWrongSpoilsNobodyElse) {
  start({.gather = {.rows_max = 3, .delay_max = 1h}});
  auto first = ask(rows("a"));
  auto wrong = ask(rows("X"));
  auto third = ask(rows("c"));
  EXPECT_EQ(text(first.get()), "b");
  const Answer refused = wrong.get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid);
  EXPECT_EQ(text(third.get()), "d");
  EXPECT_EQ(runner->counts().again_alone, 3);
  EXPECT_EQ(runner->counts().failed, 1);
}

TEST_F(RunnerTest, AnAnswerWithoutARowForEachIsAskedForAlone) {
  start({.gather = {.rows_max = 2, .delay_max = 1h}});
  auto first = ask(rows("M"));
  auto second = ask(rows("a"));
  EXPECT_EQ(text(first.get()), "m");
  EXPECT_EQ(text(second.get()), "b");
}

TEST_F(RunnerTest, AnAnswerWithoutARowForEachIsNoneAloneEither) {
  start({.gather = {.rows_max = 8, .delay_max = 0ms}});
  const Answer merged = ask(rows("Ma")).get();
  ASSERT_FALSE(merged);
  EXPECT_EQ(merged.error().code(), ErrorCode::failed);
  EXPECT_NE(merged.error().text().find("a row for each of 2"), std::string::npos) << merged.error().text();
  start({});
  EXPECT_EQ(text(ask(rows("Ma")).get()), "m") << "without batches rows mean nothing";
}

TEST_F(RunnerTest, ADeadWorkerIsNotAskedAgain) {
  start({.gather = {.rows_max = 2, .delay_max = 1h}});
  auto first = ask(rows("D"));
  auto second = ask(rows("a"));
  EXPECT_EQ(first.get().error().code(), ErrorCode::unknown);
  EXPECT_EQ(second.get().error().code(), ErrorCode::unknown);
  EXPECT_EQ(program->runs().size(), 1U);
}

TEST_F(RunnerTest, WithoutBatchesRowsMeanNothing) {
  start({});
  EXPECT_EQ(text(ask({{"x", DataType::uint8, {}, "a"}}).get()), "b");
  EXPECT_EQ(text(ask(rows("abc")).get()), "bcd");
}

TEST_F(RunnerTest, WhatNoBatchHoldsIsRefused) {
  start({.gather = {.rows_max = 2, .delay_max = 0ms}});
  const auto refused = [&](std::vector<Tensor> inputs) {
    const auto submitted = runner->submit(std::move(inputs), [](Answer&&) { ADD_FAILURE(); });
    return !submitted && submitted.error().code() == ErrorCode::invalid;
  };
  EXPECT_TRUE(refused(rows("abc")));
  EXPECT_TRUE(refused(rows("")));
  EXPECT_TRUE(refused({{"x", DataType::uint8, {}, "a"}}));
  EXPECT_TRUE(refused({{"x", DataType::uint8, {1}, "a"}, {"z", DataType::uint8, {2}, "ab"}}));
}

TEST_F(RunnerTest, TooManyAreRefusedAndThoseWhoLeaveMakeRoom) {
  start({.gather = {.rows_max = 1}, .requests_max = 2});
  program->shut();
  auto first = ask(rows("a"));
  program->wait_for_runs(1);
  RunId id;
  auto second = ask(rows("b"), &id);
  const auto third = runner->submit(rows("c"), [](Answer&&) { ADD_FAILURE(); });
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), ErrorCode::failed);
  runner->cancel(id);
  auto fourth = ask(rows("d"));
  program->open();
  EXPECT_EQ(text(first.get()), "b");
  EXPECT_EQ(text(fourth.get()), "e");
  EXPECT_EQ(program->runs().size(), 2U) << "nobody wanted the second any more";
}

TEST_F(RunnerTest, WhoHasTheMostIsRefusedBeforeOthersAre) {
  start({.gather = {.rows_max = 1}, .requests_max = 8});
  program->shut();
  std::vector<RunId> taken;
  for (;;) {
    const auto id = runner->submit(
        rows("a"), [](Answer&&) {}, "greedy");
    if (!id) break;
    taken.push_back(*id);
  }
  EXPECT_EQ(taken.size(), 6U);
  EXPECT_TRUE(runner
                  ->submit(
                      rows("b"), [](Answer&&) {}, "other")
                  .ok());
  program->wait_for_runs(1);
  runner->cancel(taken.back());
  EXPECT_TRUE(runner
                  ->submit(
                      rows("a"), [](Answer&&) {}, "greedy")
                  .ok())
      << "who leaves makes room";
  program->open();
}

TEST_F(RunnerTest, LanesComputeAtTheSameTime) {
  start({}, 3);
  program->shut();
  std::vector<std::future<Answer>> answers;
  for (const char* letter : {"a", "b", "c"}) answers.push_back(ask(rows(letter)));
  program->wait_for_runs(3);
  program->open();
  for (std::size_t nth = 0; nth < answers.size(); ++nth)
    EXPECT_EQ(text(answers[nth].get()), std::string(1, static_cast<char>('b' + nth)));
}

TEST_F(RunnerTest, ItsEndTellsAllWhoWait) {
  start({.gather = {.rows_max = 2, .delay_max = 1h}});
  program->shut();
  auto running = ask(rows("ab"));
  program->wait_for_runs(1);
  auto waiting = ask(rows("c"));
  runner.reset();
  EXPECT_EQ(running.get().error().code(), ErrorCode::unknown);
  EXPECT_EQ(waiting.get().error().code(), ErrorCode::unknown);
}

TEST_F(RunnerTest, EachGetsItsOwnAnswerAmongMany) {
  start({.gather = {.rows_max = 16, .delay_max = 100us}}, 3);
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      for (int nth = 0; nth < 200; ++nth) {
        const std::string letters(static_cast<std::size_t>(1 + nth % 3),
                                  static_cast<char>(client * 8 + nth % 8));
        std::string expected = letters;
        for (char& each : expected) ++each;
        EXPECT_EQ(text(ask(rows(letters)).get()), expected);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(runner->counts().finished, 1600);
}

}  // namespace
}  // namespace tutti::serve
