#include "control/controller/explainer.hpp"

#include <future>
#include <latch>

#include <gtest/gtest.h>

namespace tutti::controller {
namespace {

struct ExplainerTest : testing::Test {
  cluster::State state;
  std::promise<void> gate;
  std::shared_future<void> open{gate.get_future()};
  std::size_t made = 0;  // questions that were put together
  std::atomic<int> answered{0};
  std::atomic<int> refused{0};
  int addresses = 0;
  Explainer explainer;

  cluster::Question question() {
    cluster::derive(state, Instant(1000s));
    cluster::JobSpec spec;
    spec.command = {"true"};
    spec.user = "ada";
    spec.queue = cluster::default_queue;
    cluster::Job job;
    job.id = cluster::JobId(1);
    job.spec = spec;
    return cluster::question_about(state, Instant(1000s), job);
  }

  // Each from an address of its own, if it does not say.
  void ask(Explainer::IsOver is_over, std::string address = "") {
    if (address.empty()) address = "10.0.1." + std::to_string(++addresses);
    auto seat = explainer.seat(address);
    if (!seat) {
      ++refused;
      return;
    }
    explainer.ask(
        std::move(seat),
        [this]() -> Result<cluster::Question> {
          ++made;
          return question();
        },
        [this](auto answer) { ++(answer ? answered : refused); }, std::move(is_over));
  }

  // The thread is busy with a question until the gate opens; its asker has left then.
  void hold() {
    const auto held = std::make_shared<std::latch>(1);
    const auto first = std::make_shared<std::atomic<bool>>(true);
    ask([held, first, gate_open = open] {
      if (first->exchange(false)) held->count_down();
      gate_open.wait();
      return true;
    });
    held->wait();
  }

  // All that were asked until now are over.
  void wait_for_the_last() {
    std::promise<void> done;
    explainer.ask(
        nullptr, [this]() -> Result<cluster::Question> { return question(); },
        [&](auto) { done.set_value(); }, [] { return false; });
    done.get_future().wait();
  }
};

TEST_F(ExplainerTest, MoreThanMayAskAreRefused) {
  hold();
  for (std::size_t at = 1; at < questions_max + 3; ++at) ask([] { return false; });
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(answered, 0);
  EXPECT_EQ(made, questions_max) << "nothing is copied for those who are refused";
  gate.set_value();
  explainer.stop();
}

TEST_F(ExplainerTest, WhoAsksCountsBeforeHisQuestionIsPutTogether) {
  std::vector<Explainer::Seat> seats;
  while (auto seat = explainer.seat("10.0.0.1")) seats.push_back(std::move(seat));
  EXPECT_LT(seats.size(), questions_max) << "one address leaves room for the others";
  EXPECT_NE(explainer.seat("10.0.0.2"), nullptr);
  seats.pop_back();
  EXPECT_NE(explainer.seat("10.0.0.1"), nullptr);
}

TEST_F(ExplainerTest, AQuestionThatThereIsNotTakesNoPlace) {
  hold();
  for (std::size_t at = 0; at < questions_max + 3; ++at) {
    explainer.ask(
        explainer.seat("10.0.0.1"), []() -> Result<cluster::Question> { return invalid("no such job"); },
        [this](auto answer) { refused += answer.ok() ? 0 : 1; }, [] { return false; });
  }
  EXPECT_EQ(refused, static_cast<int>(questions_max) + 3);
  ask([] { return true; });
  EXPECT_EQ(made, 2U) << "the one that holds the thread, and this";
  gate.set_value();
  explainer.stop();
}

TEST_F(ExplainerTest, WhoHasLeftMakesRoomAndIsNotWorkedFor) {
  hold();
  for (std::size_t at = 1; at < questions_max; ++at) ask([] { return true; });
  EXPECT_EQ(refused, 0);
  ask([] { return false; });
  EXPECT_EQ(refused, 0);
  ask([] { return true; });
  gate.set_value();
  wait_for_the_last();
  EXPECT_EQ(answered, 1);
  EXPECT_EQ(refused, 0);
}

}  // namespace
}  // namespace tutti::controller
