#include "control/cluster/habits.hpp"

#include "control/cluster/parts_test.hpp"

namespace tutti::cluster {
namespace {

struct HabitsTest : PartsTest {
  Habits habits;

  sched::JobView view(const Job& job) {
    sched::JobView view;
    habits.fill(job, view);
    return view;
  }
  void run(Job& job, Duration time) {
    place(job, "a", {0});
    now += time;
    leave(job, JobState::succeeded);
    habits.changed(change(job, Phase::running, Phase::ended));
  }
};

TEST_F(HabitsTest, EqualShapesAreOneClassAndOneKindForAUser) {
  const auto first = view(job(1));
  const auto alike = view(job(2));
  const auto larger = view(job(3, 2));
  Job& of_bob = job(4);
  of_bob.spec.user = "bob";
  EXPECT_EQ(first.shape, alike.shape) << "shared";
  EXPECT_EQ(first.shape_class, alike.shape_class);
  EXPECT_EQ(first.kind, alike.kind);
  EXPECT_NE(first.shape_class, larger.shape_class);
  EXPECT_EQ(view(of_bob).shape_class, first.shape_class);
  EXPECT_NE(view(of_bob).kind, first.kind);
  EXPECT_EQ(habits.shape_classes(), 2U);
}

TEST_F(HabitsTest, AUsersJobsTakeWhatTheyUsuallyTook) {
  EXPECT_EQ(view(job(1)).expected, Duration());
  run(job(2), 100s);
  EXPECT_EQ(view(job(1)).expected, 150s) << "with a margin";
  EXPECT_EQ(habits.past().of(view(job(1)).kind).size(), 1U);
  job(1).spec.time_limit = 1h;
  job(1).spec.grace = 1min;
  EXPECT_EQ(view(job(1)).expected, 61min) << "a limit says more, with the grace after it";
}

TEST_F(HabitsTest, OfUsersWhoDoNotComeBackOnlySoManyAreKnown) {
  run(job(1), 100s);
  const auto ends_of = [&](std::size_t users, char kind) {
    Job& other = job(2);
    for (std::size_t at = 0; at < users; ++at) {
      other.spec.user = kind + std::to_string(at);
      run(other, 10s);
    }
  };
  ends_of(usual_users_max / 2, 'a');
  EXPECT_EQ(habits.usual("ada"), 150s);
  EXPECT_EQ(habits.usual("a7"), 15s);
  run(job(1), 100s);
  ends_of(usual_users_max / 2, 'b');
  EXPECT_EQ(habits.usual("ada"), 150s) << "whose jobs still end";
  EXPECT_EQ(habits.usual("a7"), Duration());
}

TEST_F(HabitsTest, AShapeIsSeenOnceForEachJob) {
  Job& gang = job(1);
  gang.spec.shape.gpu_share = 500;
  habits.changed(change(gang, Phase::unknown, Phase::waiting));
  gang.attempt = 1;
  habits.changed(change(gang, Phase::running, Phase::waiting));
  ASSERT_EQ(habits.mix()->shapes.size(), 1U);
  EXPECT_EQ(habits.mix()->shapes.front().second, 1);
}

TEST_F(HabitsTest, WhatASimulationKnowsIsForgottenAtTheEnd) {
  habits.knows(JobId(1), 1h);
  const Views waiting{{JobId(1), view(job(1))}};
  EXPECT_EQ(waiting.at(JobId(1)).remaining, 1h);
  EXPECT_TRUE(habits.check(waiting, {}).ok());
  EXPECT_EQ(habits.check({}, {}).error().text(), "the index knows how long job 1 runs, which has ended");
  run(job(1), 1h);
  EXPECT_TRUE(habits.check({}, {}).ok());
}

TEST_F(HabitsTest, NumbersThatItForgotAreWrong) {
  view(job(2, 2));
  Views waiting{{JobId(1), view(job(1))}};
  habits.forget();
  EXPECT_EQ(habits.check(waiting, {}).error().text(), "the index numbers the shape of job 1 wrongly");
  habits.fill(job(1), waiting.at(JobId(1)));
  EXPECT_TRUE(habits.check(waiting, {}).ok());
}

}  // namespace
}  // namespace tutti::cluster
