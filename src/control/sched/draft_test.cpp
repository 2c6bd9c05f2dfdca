#include "control/sched/draft.hpp"

#include <gtest/gtest.h>

#include "control/sched/world_test.hpp"

namespace tutti::sched {
namespace {

TEST(Draft, EveryGangIsInThePlanWithItsReason) {
  World world({node("a", 8)});
  world.held = {{JobId(5), "waits for job 1"}};
  JobView& first = world.add(1, gpus(1));
  JobView& second = world.add(2, gpus(1));
  JobView& third = world.add(3, gpus(1));
  first.attempt = 4;
  Draft draft(world.snapshot());
  const Draft::Reason why = draft.say("no room");
  draft.wait(third, why);
  draft.wait(second, why);
  draft.start(first, {});
  EXPECT_EQ(&draft.started(0), &first);
  draft.wake_by(Instant(2h));
  draft.wake_by(Instant(3h));
  const Plan plan = std::move(draft).finish();
  EXPECT_EQ(plan.revision, 7U);
  EXPECT_EQ(plan.starts.front().attempt, 4);
  EXPECT_EQ(plan.wake, Instant(2h)) << "the earliest";
  EXPECT_EQ(plan.waiting->jobs.size(), 3U);
  EXPECT_EQ(plan.waiting->whys.size(), 2U) << "two share one reason";
  EXPECT_EQ(sched::why(plan, 2), "no room");
  EXPECT_EQ(sched::why(plan, 5), "waits for job 1");
}

}  // namespace
}  // namespace tutti::sched
