#include "control/cluster/followers.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct FollowersTest : ClusterTest {
  JobSpec after(std::vector<JobId> before, bool success) const {
    JobSpec follower = spec(1, 0);
    for (const JobId id : before) follower.after.push_back({id, success});
    return follower;
  }
  std::string broken() const {
    const auto checked = invariants(state);
    return checked ? "" : checked.error().text();
  }
  std::size_t waiting_in_snapshot() {
    const auto seen = snapshot(state, now);
    return seen.queued.size() + seen.held.size();
  }
};

TEST_F(FollowersTest, AJobWaitsForTheFirstThatHasNotEndedInWhateverOrderTheyEnd) {
  std::vector<JobId> before;
  for (int job = 0; job < 4; ++job) before.push_back(submit(spec(1, 0)));
  const JobId last = submit(after({before[0], before[1], before[2], before[3], before[1]}, false));
  EXPECT_EQ(state.index.dependencies().all(), 4U);
  EXPECT_EQ(why(last), "waits for job 1 to end");
  happen(Cancel{before[1], "", false});
  EXPECT_EQ(why(last), "waits for job 1 to end");
  happen(Cancel{before[0], "", false});
  EXPECT_EQ(why(last), "waits for job 3 to end");
  happen(Cancel{before[2], "", false});
  happen(Cancel{before[3], "", false});
  EXPECT_TRUE(state.index.waits().empty());
  EXPECT_EQ(state.index.dependencies().all(), 0U);
  EXPECT_EQ(waiting_in_snapshot(), 1U);
}

TEST_F(FollowersTest, APassDoesNotLookAtThoseThatWaitForOthers) {
  const JobId first = submit(spec(1, 0));
  for (int job = 0; job < 50; ++job) submit(after({first}, job % 2 == 0));
  EXPECT_EQ(waiting_in_snapshot(), 1U);
  EXPECT_EQ(broken(), "");
}

TEST_F(FollowersTest, TheDoomedEndInPiecesAndNoneStartsMeanwhile) {
  const std::size_t count = 2 * doomed_per_step_max + 10;
  const JobId first = submit(spec(1, 0));
  for (std::size_t job = 0; job < count; ++job) step(state, now, Submit{{after({first}, true)}});
  const auto cancelled = step(state, now, Cancel{first, "ada", false});
  EXPECT_EQ(cancelled.jobs, std::set<JobId>{first}) << "one request writes one job";
  EXPECT_EQ(state.index.doomed().size(), count);
  EXPECT_EQ(step(state, now, EndDoomed{}).jobs.size(), doomed_per_step_max);
  EXPECT_EQ(state.index.doomed().size(), count - doomed_per_step_max);
  EXPECT_EQ(waiting_in_snapshot(), 0U);
  EXPECT_NE(why(JobId(state.next_job - 1)).find("it is about to end"), std::string::npos);
  // A controller that is killed in between goes on where it was.
  derive(state, now);
  EXPECT_EQ(state.index.doomed().size(), count - doomed_per_step_max);
  EXPECT_EQ(broken(), "");
  step(state, now, EndDoomed{});
  step(state, now, EndDoomed{});
  EXPECT_TRUE(state.active.empty());
  EXPECT_EQ(broken(), "");
}

TEST_F(FollowersTest, HowManyWaitForHowManyIsBoundedAltogether) {
  std::vector<JobId> before;
  for (int job = 0; job < 1'000; ++job)
    before.push_back(*step(state, now, Submit{{spec(1, 0)}}).reply->begin());
  const JobSpec one = after(before, false);
  std::vector<JobSpec> elements;
  for (std::int32_t index = 0; index < 750; ++index) {
    elements.push_back(one);
    elements.back().array = ArrayPart{JobId(), index, 750, 0};
  }
  ASSERT_TRUE(step(state, now, Submit{elements}).reply.ok());
  EXPECT_EQ(state.index.dependencies().all(), 3 * dependencies_total_max / 4);
  const auto refused = step(state, now, Submit{{after({before[0]}, false)}}).reply;
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("holds 750000 of the 1000000 dependencies"), std::string::npos)
      << refused.error().text();
  EXPECT_EQ(waiting_in_snapshot(), 1'000U);
  for (const JobId id : before) step(state, now, Cancel{id, "", false});
  EXPECT_EQ(state.index.dependencies(), Shares());
  EXPECT_EQ(waiting_in_snapshot(), 750U);
}

}  // namespace
}  // namespace tutti::cluster
