// What people ask for: cancels, arrays, dependencies.
#include "control/cluster/step.hpp"

#include <algorithm>

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

TEST_F(ClusterTest, CancelEndsTheGangFirst) {
  join("a", 1);
  const JobId running = submit(spec(1));
  const JobId queued = submit(spec(1));
  all_start(running);
  happen(Cancel{queued, "ada"});
  EXPECT_EQ(job(queued).state, JobState::cancelled);
  happen(Cancel{running, "ada"});
  EXPECT_EQ(job(running).state, JobState::running);
  all_exit(running, 143);
  EXPECT_EQ(job(running).state, JobState::cancelled);
  EXPECT_EQ(job(running).reason, "cancelled by ada");
  EXPECT_FALSE(happen(Cancel{running, ""}).reply.ok());
  EXPECT_FALSE(happen(Cancel{JobId(99), ""}).reply.ok());
}

TEST_F(ClusterTest, ACancelWithoutGraceIsToldToNodesThatWereAwayToo) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  happen(Cancel{id, "ada"});
  sends.clear();
  happen(Cancel{id, "ada", false, true});
  ASSERT_EQ(sends.size(), 1U);
  EXPECT_TRUE(std::get<EndRanks>(sends[0]).at_once);
  sends.clear();
  happen(Cancel{id, "ada"});
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  ASSERT_EQ(sends.size(), 2U);
  EXPECT_TRUE(std::get<EndRanks>(sends[1]).at_once) << "a later cancel does not give time again";
  all_exit(id, 137);
  EXPECT_EQ(job(id).state, JobState::cancelled);
}

TEST_F(ClusterTest, TheElementsOfAnArrayAreReleasedTogether) {
  join("a", 1);
  std::vector<JobSpec> elements(3, spec(1));
  for (std::int32_t index = 0; index < 3; ++index)
    elements[static_cast<std::size_t>(index)].array = ArrayPart{JobId(), index, 3, 0};
  const auto ids = happen(Submit{elements}).reply.value();
  EXPECT_FALSE(happen(Release{ids[0], true}).reply.ok()) << "none of them is held";
  for (const JobId id : {ids[1], ids[2]}) {
    job(id).held = "is held";
    derive(state, job(id), now);
  }
  EXPECT_EQ(happen(Release{ids[0], true}).reply.value(), (std::vector<JobId>{ids[1], ids[2]}));
  EXPECT_EQ(job(ids[2]).held, "");
  EXPECT_FALSE(happen(Release{submit(spec(1)), true}).reply.ok()) << "it is no element of an array";
}

// However many elements an array has: what is asked of it again and again looks at those alone that it is
// about.
TEST_F(ClusterTest, OnlyThoseElementsOfAnArrayAreLookedAtThatARequestIsAbout) {
  join("a", 2);
  std::vector<JobSpec> elements(4, spec(1));
  for (std::int32_t index = 0; index < 4; ++index)
    elements[static_cast<std::size_t>(index)].array = ArrayPart{JobId(), index, 4, 2};
  const auto ids = happen(Submit{elements}).reply.value();
  const JobId other = submit(spec(1));
  job(other).held = job(ids[2]).held = "is held";
  for (const JobId id : {other, ids[2]}) derive(state, job(id), now);
  EXPECT_EQ(array_elements_in(state.held_back, state, ids[3]).value(), std::vector{ids[2]});
  all_exit(ids[0]);
  EXPECT_EQ(array_elements_in(state.active, state, ids[0]).value(), (std::vector{ids[1], ids[2], ids[3]}));
  happen(Release{ids[0], true});
  EXPECT_TRUE(array_elements_in(state.held_back, state, ids[0]).value().empty());
  EXPECT_FALSE(array_elements_in(state.active, state, other).ok()) << "it is no element of an array";
}

TEST_F(ClusterTest, DependenciesHoldAJobBackOrEndIt) {
  join("a", 8);
  const JobId first = submit(spec(1));
  JobSpec after = spec(1);
  after.after = {{first, false}};
  JobSpec needs = spec(1);
  needs.after = {{first, true}};
  const JobId second = submit(after);
  const JobId third = submit(needs);
  EXPECT_FALSE(job(second).placed());
  EXPECT_EQ(why(second), "waits for job 1 to end");
  EXPECT_EQ(why(third), "waits for job 1 to succeed");
  all_exit(first, 1);
  EXPECT_TRUE(job(second).placed());
  EXPECT_EQ(job(third).state, JobState::cancelled);
  EXPECT_EQ(job(third).reason, "job 1, whose success it needs, failed");
  EXPECT_FALSE(happen(Submit{{needs}}).reply.ok()) << "it has failed already";
  JobSpec unknown = spec(1);
  unknown.after = {{JobId(77), false}};
  EXPECT_FALSE(happen(Submit{{unknown}}).reply.ok());
}

TEST_F(ClusterTest, AChainOfDependentsEndsWithItsFirstLink) {
  join("a", 8);
  std::vector<JobId> chain{submit(spec(1))};
  for (int link = 0; link < 3; ++link) {
    JobSpec next = spec(1);
    next.after = {{chain.back(), true}};
    chain.push_back(submit(next));
  }
  all_exit(chain[0], 1);
  EXPECT_EQ(job(chain[1]).reason, "job 1, whose success it needs, failed");
  EXPECT_EQ(job(chain[3]).reason, "job 3, whose success it needs, cancelled");
  EXPECT_TRUE(state.active.empty());
}

TEST_F(ClusterTest, JobsOfOneRequestAreOneArray) {
  join("a", 8);
  JobSpec first = spec(1);
  JobSpec other = spec(1);
  EXPECT_FALSE(happen(Submit{{first, other}}).reply.ok());
  first.array = ArrayPart{JobId(), 0, 2, 0};
  other.array = ArrayPart{JobId(), 1, 2, 0};
  EXPECT_TRUE(happen(Submit{{first, other}}).reply.ok());
  other.queue = "nobody";
  EXPECT_FALSE(happen(Submit{{first, other}}).reply.ok()) << "each of them is looked at";
}

TEST_F(ClusterTest, AnArrayRunsAtMostItsLimitAtOnce) {
  join("a", 8);
  std::vector<JobSpec> elements;
  for (std::int32_t index = 0; index < 5; ++index) {
    elements.push_back(spec(1));
    elements.back().array = ArrayPart{JobId(), index, 5, 2};
  }
  const auto ids = happen(Submit{elements}).reply.value();
  ASSERT_EQ(ids.size(), 5U);
  const auto running = [&] {
    return std::count_if(ids.begin(), ids.end(), [&](JobId id) { return job(id).placed(); });
  };
  EXPECT_EQ(running(), 2);
  EXPECT_EQ(why(ids[4]), "waits for other elements of its array: at most 2 run at once");
  all_exit(ids[0]);
  EXPECT_EQ(running(), 2);
  EXPECT_EQ(job(ids[3]).spec.array->first, ids[0]);
}

TEST_F(ClusterTest, AnArrayIsCancelledAsAWhole) {
  join("a", 8);
  const JobId before = submit(spec(1));
  std::vector<JobSpec> elements;
  for (std::int32_t index = 0; index < 4; ++index) {
    elements.push_back(spec(1));
    elements.back().array = ArrayPart{JobId(), index, 4, 2};
  }
  const auto ids = happen(Submit{elements}).reply.value();
  JobSpec needs = spec(1);
  needs.after = {{ids[3], true}};
  const JobId dependent = submit(needs);
  const JobId other = submit(spec(1));
  all_exit(ids[0]);
  EXPECT_FALSE(happen(Cancel{before, "ada", true}).reply.ok()) << "it is no element of an array";
  EXPECT_FALSE(happen(Cancel{JobId(99), "ada", true}).reply.ok());

  EXPECT_EQ(happen(Cancel{ids[2], "ada", true}).reply.value(), (std::vector<JobId>{ids[1], ids[2], ids[3]}));
  EXPECT_EQ(job(ids[0]).state, JobState::succeeded) << "what has ended stays as it is";
  EXPECT_EQ(job(ids[3]).state, JobState::cancelled) << "it had not begun";
  EXPECT_EQ(job(ids[3]).reason, "cancelled by ada");
  EXPECT_EQ(job(dependent).state, JobState::cancelled);
  for (const JobId id : {ids[1], ids[2]}) {
    EXPECT_FALSE(job(id).finished()) << "its ranks are being ended";
    all_exit(id, 143);
    EXPECT_EQ(job(id).state, JobState::cancelled);
  }
  EXPECT_TRUE(job(before).placed());
  EXPECT_TRUE(job(other).placed());
  EXPECT_FALSE(happen(Cancel{ids[2], "ada", true}).reply.ok()) << "all of it has ended";
}

TEST_F(ClusterTest, ElementsOfAnArrayHaveIndicesOfTheirOwn) {
  join("a", 4);
  JobSpec element = spec(1);
  element.array = ArrayPart{{}, 7, 3, 0};
  JobSpec other = element;
  other.array->index = 8;
  const auto refused = happen(Submit{{element, other, element}}).reply;
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("index 7 is there twice"), std::string::npos);
  EXPECT_TRUE(state.jobs.empty());
  EXPECT_TRUE(happen(Submit{{element, other}}).reply.ok());
}

TEST_F(ClusterTest, AJobThatEndsWhileItWaitsIsToldToTheNodeWhereItRanLast) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  happen(Drain{"a", true});
  report(id, 0, {RankState::exited, 143, ""});
  ASSERT_FALSE(job(id).placed());
  sends.clear();
  happen(Cancel{id, "a person"});
  ASSERT_EQ(sends.size(), 1U);
  const auto& told = std::get<ForgetRanks>(sends.front());
  EXPECT_EQ(told.node, "a");
  EXPECT_EQ(told.job, id);
  EXPECT_TRUE(told.job_ended) << "what it saved there is marked as that of a job that is over";
}

}  // namespace
}  // namespace tutti::cluster
