// A job is ended by its time limit when its nodes have said that it still runs, and not before.
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct TimeLimits : ClusterTest {
  JobId submit_limited(std::int32_t ranks) {
    JobSpec limited = spec(ranks);
    limited.time_limit = 6s;
    const JobId id = submit(limited);
    all_start(id);
    return id;
  }
  RankReport of(JobId id, std::int32_t rank, RankState rank_state) const {
    return {id, 0, rank, {rank_state}};
  }
  // The controller was killed, and is back after this time.
  void restart_after(Duration time) {
    now += time;
    derive(state, now);
    sends.clear();
  }
  // The process stood still for this time: leases start anew, nothing was heard yet.
  void freeze(Duration time) {
    now += time;
    for (auto& [name, node] : state.nodes) node.heard_at = now;
    sends.clear();
  }
};

TEST_F(TimeLimits, DoNotFailWhatSucceededWhileTheControllerWasFrozen) {
  join("a", 1);
  const JobId id = submit_limited(1);
  freeze(9s);
  happen(Tick{});
  EXPECT_EQ(sent<EndRanks>(), 0U);
  EXPECT_EQ(sent<AskHello>(), 1U);
  happen(Heard{"a"});  // said long before the report that comes behind it
  pass(200ms);
  EXPECT_EQ(sent<EndRanks>(), 0U);
  all_exit(id, 0);
  EXPECT_EQ(job(id).state, JobState::succeeded) << job(id).reason;
}

TEST_F(TimeLimits, DoNotFailWhatSucceededWhileTheControllerWasGone) {
  join("a", 1);
  const JobId id = submit_limited(1);
  JobSpec next = spec(1);
  next.after = {{id, true}};
  const JobId follower = submit(next);
  restart_after(8s);
  happen(Tick{});
  join("a", 1, {of(id, 0, RankState::exited)});
  EXPECT_EQ(job(id).state, JobState::succeeded) << job(id).reason;
  EXPECT_FALSE(job(follower).finished()) << job(follower).reason;
}

// Its node may lay out folders of others first.
TEST_F(TimeLimits, CountFromWhenAllRanksRun) {
  join("a", 2);
  JobSpec limited = spec(2);
  limited.time_limit = 6s;
  const JobId id = submit(limited);
  happen(Reported{"a", of(id, 0, RankState::started)});
  const auto live = [&](int seconds) {
    for (int second = 0; second < seconds; ++second) {
      pass(1s);
      join("a", 2, {of(id, 0, RankState::started), of(id, 1, job(id).ranks[1].state)});
    }
  };
  live(20);
  EXPECT_EQ(job(id).ending, EndCause::none) << job(id).reason;
  happen(Reported{"a", of(id, 1, RankState::started)});
  live(5);
  EXPECT_EQ(job(id).ending, EndCause::none) << job(id).reason;
  live(3);
  EXPECT_EQ(job(id).ending, EndCause::time_limit);
}

TEST_F(TimeLimits, EndAlsoWhatNeverStarts) {
  join("a", 1);
  JobSpec limited = spec(1);
  limited.time_limit = 6s;
  const JobId id = submit(limited);
  for (int minute = 0; minute < 12 && job(id).ending == EndCause::none; ++minute) {
    now += 1min;
    for (auto& [name, node] : state.nodes) node.heard_at = now;
    join("a", 1, {of(id, 0, RankState::assigned)});
    happen(Tick{});
  }
  EXPECT_EQ(job(id).ending, EndCause::time_limit);
}

TEST_F(TimeLimits, EndWhatStillRunsWhenEveryNodeOfItHasSaidSo) {
  join("a", 1);
  join("b", 1);
  const JobId id = submit_limited(2);
  restart_after(8s);
  happen(Tick{});
  EXPECT_EQ(sent<AskHello>(), 2U);
  join("a", 1, {of(id, 0, RankState::started)});
  pass(200ms);
  EXPECT_EQ(sent<EndRanks>(), 0U) << "nothing is known of the other node";
  EXPECT_EQ(sent<AskHello>(), 2U) << "each is asked once";
  join("b", 1, {of(id, 1, RankState::started)});
  pass(200ms);
  EXPECT_EQ(sent<EndRanks>(), 2U);
  all_exit(id, 0);
  EXPECT_EQ(job(id).state, JobState::failed) << "they exited when they were told to";
  EXPECT_EQ(job(id).reason, "ran past its time limit of 6s");
}

TEST_F(TimeLimits, AreNotJudgedByTheDeaf) {
  join("a", 1);
  const JobId id = submit_limited(1);
  now += 9s;
  happen(Tick{.deaf = true});
  EXPECT_EQ(sent<AskHello>(), 0U) << "the answer to an older question could be taken for this one's";
  EXPECT_EQ(job(id).ending, EndCause::none);
}

TEST_F(TimeLimits, AskAgainWhatWasNotAnswered) {
  join("a", 1);
  const JobId id = submit_limited(1);
  freeze(9s);
  happen(Tick{});
  for (int beat = 0; beat < 4; ++beat) {
    happen(Heard{"a"});
    pass(lease / 3);
  }
  EXPECT_EQ(sent<AskHello>(), 2U);
  EXPECT_EQ(job(id).ending, EndCause::none);
}

TEST_F(TimeLimits, WaitForTheWordOfTheirOwnTime) {
  join("a", 2);
  const JobId first = submit_limited(1);
  now += 3s;
  happen(Heard{"a"});
  const JobId second = submit_limited(1);
  now += 3s;
  happen(Heard{"a"});
  pass(200ms);
  const std::vector<RankReport> running{of(first, 0, RankState::started), of(second, 0, RankState::started)};
  join("a", 2, running);
  pass(200ms);
  EXPECT_EQ(job(first).ending, EndCause::time_limit);
  now += 2s;
  happen(Heard{"a"});
  pass(1s);
  EXPECT_EQ(job(second).ending, EndCause::none) << "what was told was told before its limit";
  join("a", 2, running);
  pass(200ms);
  EXPECT_EQ(job(second).ending, EndCause::time_limit);
}

TEST_F(TimeLimits, LeaveANodeThatStaysAwayToItsLease) {
  join("a", 1);
  const JobId id = submit_limited(1);
  restart_after(8s);
  happen(Tick{});
  pass(lease + 1s);
  EXPECT_TRUE(state.nodes.at("a").lost);
  EXPECT_EQ(job(id).state, JobState::restarting) << job(id).reason;
}

// It may stay for its grace once it is told to end: a short limit with a long grace is no short job.
TEST_F(TimeLimits, PromisesCountTheGraceThatWasAskedFor) {
  join("a", 8);
  join("b", 8);
  const auto asked = [this](std::int32_t ranks, Duration limit, Duration grace) {
    JobSpec limited = spec(ranks);
    limited.time_limit = limit;
    limited.grace = grace;
    return submit(limited);
  };
  const JobId first = asked(8, 40s, 10s);
  all_start(first);
  const JobId wide = asked(16, 1h, 10s);
  const JobId stays = asked(8, 10s, 24h);
  const JobId leaves = asked(8, 10s, 10s);
  EXPECT_FALSE(job(stays).placed()) << "it would keep the wide one waiting until tomorrow";
  EXPECT_TRUE(job(leaves).placed()) << "it is gone before the wide one can start";
  EXPECT_FALSE(job(wide).placed());
  EXPECT_NE(why(wide).find(format_instant(now + 50s)), std::string::npos) << why(wide);
}

}  // namespace
}  // namespace tutti::cluster
