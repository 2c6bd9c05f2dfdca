#include "control/cluster/explain.hpp"

#include <gtest/gtest.h>

namespace tutti::cluster {
namespace {

// One node of four GPUs, and a scheduler beside it.
struct Questions : testing::Test {
  State state;
  Instant now{1000s};

  void SetUp() override {
    derive(state, now);
    Hello hello{"n1", "", "10.0.0.1", 1, {}, {}};
    for (int gpu = 0; gpu < 4; ++gpu) hello.inventory.devices.push_back({"H100", gib(80), "uuid"});
    hello.inventory.cpus = 16;
    EXPECT_EQ(refusal(hello), "fine");
  }

  Result<std::vector<JobId>> happen(const Event& event) {
    Effects effects = step(state, now, event);
    if (effects.schedule)
      step(state, now, Planned{sched::schedule(snapshot(state, now), now), state.index.generation()});
    const auto checked = invariants(state);
    EXPECT_TRUE(checked.ok()) << (checked ? "" : checked.error().text());
    return effects.reply;
  }

  static JobSpec spec(std::int32_t gpus, const QueueName& queue = default_queue) {
    JobSpec spec;
    spec.command = {"true"};
    spec.user = "ada";
    spec.queue = queue;
    spec.time_limit = 1h;
    spec.shape = {.ranks = gpus, .gpu_share = 1000};
    return spec;
  }

  JobId submit(const JobSpec& what) {
    const auto ids = happen(Submit{{what}});
    EXPECT_TRUE(ids.ok()) << (ids ? "" : ids.error().text());
    return ids ? ids->front() : JobId();
  }

  std::string refusal(const Event& event) {
    const auto done = happen(event);
    return done ? "fine" : done.error().text();
  }
};

TEST_F(Questions, StandAlone) {
  submit(spec(4));
  const JobId waits = submit(spec(2));
  const Question question = question_about(state, now, state.jobs.at(waits));
  const auto here = snapshot(state, now);
  EXPECT_NE(question.standing->snapshot.past, here.past) << "which changes whenever a job ends";
  for (const sched::JobView* view : question.standing->snapshot.running)
    EXPECT_EQ(std::count(here.running.begin(), here.running.end(), view), 0);
  state = {};
  EXPECT_FALSE(question.answer().why.empty());
}

TEST_F(Questions, AWaitingJobIsAskedAbout) {
  const JobId first = submit(spec(4));
  const JobId second = submit(spec(2));
  ASSERT_TRUE(state.jobs.at(first).placed());
  const auto answer = question_about(state, now, state.jobs.at(second)).answer();
  EXPECT_EQ(answer.expected_start, now + 1h + 10s) << "with its grace";
  EXPECT_EQ(answer.queue, "default");
  EXPECT_EQ(answer.ahead, 0U);
}

// The state may be gone when the answer is worked out.
TEST_F(Questions, AQuestionOwnsWhatItIsAbout) {
  submit(spec(4));
  const JobId second = submit(spec(2));
  const Question question = [&] {
    Question asked = question_about(state, now, state.jobs.at(second));
    state = State();
    return asked;
  }();
  EXPECT_EQ(question.answer().expected_start, now + 1h + 10s) << "with its grace";
}

TEST_F(Questions, AJobThatIsNotSubmittedChangesNothing) {
  submit(spec(3));
  const std::uint64_t revision = state.revision;
  const auto fits = question_about(state, now, Submit{{spec(1)}});
  ASSERT_TRUE(fits.ok());
  EXPECT_TRUE(fits->answer().starts_now);
  const auto waits = question_about(state, now, Submit{{spec(2)}});
  ASSERT_TRUE(waits.ok());
  const auto answer = waits->answer();
  EXPECT_EQ(answer.expected_start, now + 1h + 10s) << "with its grace";
  ASSERT_EQ(answer.suggestions.size(), 1U);
  EXPECT_EQ(answer.suggestions[0].change, "1 instead of 2 ranks");
  EXPECT_EQ(state.revision, revision);
  EXPECT_EQ(state.jobs.size(), 1U);
  EXPECT_TRUE(invariants(state).ok());
}

// Whoever asks about one shape after the other has the queue copied once, and leaves nothing behind.
TEST_F(Questions, ShapesThatAreOnlyAskedAboutAreNotLearnedAndCostNoCopy) {
  submit(spec(4));
  for (std::size_t queued = 0; queued < standing_shared_min; ++queued) step(state, now, Submit{{spec(1)}});
  const std::uint32_t classes = snapshot(state, now).shape_classes;
  const Standing* copied = nullptr;
  for (std::int32_t cpus = 1; cpus <= 16; ++cpus) {
    now += 1ms;
    JobSpec other = spec(1);
    other.shape.cpus = cpus;
    other.user = "user-" + std::to_string(cpus);
    const auto question = question_about(state, now, Submit{{other}});
    ASSERT_TRUE(question.ok());
    if (copied == nullptr) copied = question->standing.get();
    EXPECT_EQ(question->standing.get(), copied);
    EXPECT_EQ(*question->job.shape, other.shape);
    EXPECT_EQ(question->job.shape_class, classes) << "that of no job in the copy";
  }
  EXPECT_EQ(snapshot(state, now).shape_classes, classes);
  // A shape that is submitted after the copy was made is not one of its shapes, either.
  JobSpec later = spec(1);
  later.shape.cpus = 3;
  const auto submitted = step(state, now, Submit{{later}}).reply;
  ASSERT_TRUE(submitted.ok());
  const Question question = question_about(state, now, state.jobs.at(submitted->front()));
  EXPECT_EQ(question.standing.get(), copied);
  EXPECT_EQ(question.job.shape_class, classes);
  EXPECT_FALSE(question.answer({.start = [] { return true; }, .changes = [] { return true; }}).starts_now);
}

TEST_F(Questions, WhatWouldBeRefusedIsRefused) {
  const auto why = [&](const JobSpec& what) {
    const auto asked = question_about(state, now, Submit{{what}});
    return asked ? "fine" : asked.error().text();
  };
  EXPECT_NE(why(spec(5)).find("can never run here"), std::string::npos) << why(spec(5));
  EXPECT_EQ(why(spec(1, "nobody")), "there is no queue 'nobody'");
  EXPECT_FALSE(question_about(state, now, Submit{}).ok());
}

TEST_F(Questions, ADependencyIsWhatItWaitsFor) {
  const JobId first = submit(spec(1));
  JobSpec after = spec(1);
  after.after = {{first, false}};
  const std::string why = "waits for job " + first.text() + " to end";
  EXPECT_EQ(question_about(state, now, Submit{{after}})->answer().why, why);
  EXPECT_EQ(question_about(state, now, state.jobs.at(submit(after))).answer().why, why);
}

// ---- queues

TEST_F(Questions, AQueueKeepsWhatASetDoesNotName) {
  EXPECT_EQ(refusal(SetQueue{"research", 2000, 3000, 1000, 2.5}), "fine");
  EXPECT_EQ(refusal(SetQueue{.name = "research", .limit = sched::no_limit}), "fine");
  EXPECT_EQ(state.queues.at("research"),
            (Queue{"research", 2000, sched::no_limit, 1000, 2.5, priority_max, 1}));
  EXPECT_EQ(
      refusal(SetQueue{.name = "research/vision", .guarantee = 3000}),
      "queue research/vision : the parts of research would be guaranteed 3 GPUs, and research itself only 2");
  EXPECT_EQ(refusal(SetQueue{.name = "nobody/a"}),
            "queue nobody/a : there is no queue 'nobody' for it to be a part of");
  EXPECT_EQ(refusal(SetQueue{.name = "research/vision", .guarantee = 2000}), "fine");
  EXPECT_EQ(refusal(SetQueue{.name = "research", .guarantee = 1000}),
            "queue research : its parts are guaranteed 2 GPUs, which is more");
  EXPECT_EQ(refusal(SetQueue{.name = "a b"}), "queue a b : 'a b' is no name of a queue");
  EXPECT_EQ(refusal(SetQueue{.name = "a", .weight = 0}),
            "queue a : the weight is a number from 0.001 to 1000000");
}

TEST_F(Questions, AQueueIsRemovedWhenNothingIsInIt) {
  EXPECT_EQ(refusal(SetQueue{.name = "research"}), "fine");
  EXPECT_EQ(refusal(SetQueue{.name = "research/vision"}), "fine");
  EXPECT_EQ(refusal(RemoveQueue{"research"}), "the queue 'research' has a part: research/vision");
  EXPECT_EQ(refusal(RemoveQueue{"default"}),
            "the queue 'default' is where jobs go that name none, and stays");
  const JobId job = submit(spec(1, "research/vision"));
  EXPECT_EQ(refusal(RemoveQueue{"research/vision"}), "a job is in the queue 'research/vision'");
  EXPECT_EQ(refusal(Cancel{job, "", false}), "fine");
  EXPECT_EQ(refusal(Reported{"n1", {job, 0, 0, {RankState::exited, 143, ""}}}), "fine");
  EXPECT_EQ(refusal(RemoveQueue{"research/vision"}), "fine");
  EXPECT_EQ(refusal(RemoveQueue{"research"}), "fine");
  EXPECT_EQ(refusal(RemoveQueue{"research"}), "there is no queue 'research'");
}

TEST_F(Questions, ALimitHoldsAJobBackAndAnotherQueueIsSuggested) {
  EXPECT_EQ(refusal(SetQueue{.name = "research", .limit = 2000}), "fine");
  submit(spec(2, "research"));
  const JobId job = submit(spec(1, "research"));
  const auto answer = question_about(state, now, state.jobs.at(job)).answer();
  EXPECT_EQ(answer.why, "needs 1 GPU; queue research uses 2 of at most 2");
  ASSERT_EQ(answer.suggestions.size(), 1U);
  EXPECT_EQ(answer.suggestions[0].change, "queue default instead of research");
  EXPECT_EQ(refusal(Submit{{spec(3, "research")}}),
            "this job needs 3 GPUs, and the queue research may use at most 2");
}

}  // namespace
}  // namespace tutti::cluster
