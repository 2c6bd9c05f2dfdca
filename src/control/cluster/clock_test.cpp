// A clock that is set changes nothing of how long things take.
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

// What nodes count from need not be the start of a rank.
constexpr Duration counted_from = 1h;

struct ClockTest : ClusterTest {
  Duration offset{};

  void SetUp() override {
    now = Instant(std::chrono::hours(24 * 365 * 50));
    ClusterTest::SetUp();
    happen(ClockSet{{"boot", offset}});
    join("a", 4);
  }
  void set_clock(Duration by) {
    now += by;
    offset += by;
    for (auto& [name, node] : state.nodes) node.heard_at = now;  // as whoever drives this does
    happen(ClockSet{{"boot", offset}});
    happen(Tick{});
  }
  // Another controller goes on with the state, on a machine whose clock is off by so much.
  void reboot(Duration by) {
    now += by;
    derive(state, now);
    happen(ClockSet{{"another boot", Duration(5s)}});
  }
  void live(Duration time) {
    for (const Instant until = now + time; now < until;) {
      happen(Heard{"a"});
      pass(std::min<Duration>(1s, until - now));
    }
  }
  JobId run_limited(Duration limit = 6s) {
    JobSpec limited = spec(1);
    limited.time_limit = limit;
    const JobId id = submit(limited);
    runs(id, 0s);
    return id;
  }
  // What its node says of rank 0, that has run for so long.
  void runs(JobId id, Duration ran) {
    happen(Reported{"a", {id, job(id).attempt, 0, {RankState::started}, {}, counted_from + ran}});
  }
  void join_with(JobId id, Duration ran) {
    join("a", 4, {{id, job(id).attempt, 0, {RankState::started}, {}, counted_from + ran}});
  }
};

TEST_F(ClockTest, ALimitComesNeitherSoonerNorLater) {
  for (const Duration by : {Duration(10h), Duration(-10h)}) {
    const JobId id = run_limited();
    live(2s);
    set_clock(by);
    live(3s);
    ASSERT_EQ(sent<AskHello>(), 0U) << "five of its six seconds are over";
    live(2s);
    ASSERT_EQ(sent<AskHello>(), 1U);
    join_with(id, 7s);
    live(1s);
    EXPECT_EQ(job(id).ending, EndCause::time_limit);
    all_exit(id, 143);
    EXPECT_EQ(job(id).finished_at - job(id).started_at, 8s);
    sends.clear();
  }
}

TEST_F(ClockTest, NobodyIsChargedForTimeThatNobodyHad) {
  for (const Duration by : {Duration(24h), Duration(-24h)}) {
    const JobId id = submit(spec(2));
    all_start(id);
    live(10s);
    const double before = state.index.use_of_queue("default", now).past;
    set_clock(by);
    EXPECT_DOUBLE_EQ(state.index.use_of_queue("default", now).past, before) << "it is as old as it was";
    live(10s);
    all_exit(id);
    EXPECT_DOUBLE_EQ(job(id).served, 2 * 20.0);
  }
}

TEST_F(ClockTest, APauseLastsAsLongAsItWould) {
  for (const Duration by : {Duration(1h), Duration(-1h)}) {
    JobSpec wanted = spec(4);
    wanted.restart_on_failure = 1000;
    const JobId id = submit(wanted);
    for (int end = 0; end < 5; ++end) {
      if (!job(id).placed()) live(restart_pause(end));
      all_exit(id, 1);
    }
    ASSERT_TRUE(is_paused(state, job(id)));
    set_clock(by);
    EXPECT_EQ(job(id).not_before, now + restart_pause(5));
    live(restart_pause(5) - 1s);
    EXPECT_FALSE(job(id).placed());
    live(2s);
    EXPECT_TRUE(job(id).placed());
    happen(Cancel{id, "", false, true});
    all_exit(id, 137);
  }
}

// Who has asked while the clock was a day ahead does not wait for that day behind all others.
TEST_F(ClockTest, WhoAskedWhileTheClockWasAheadKeepsTheTurn) {
  for (const bool reboots : {false, true}) {
    const JobId running = submit(spec(4));
    all_start(running);
    now += 24h;
    offset += 24h;
    happen(ClockSet{{"boot", offset}});
    const JobId first = submit(spec(4));
    const JobId second = submit(spec(4));
    if (reboots) {
      reboot(-24h);
    } else {
      set_clock(-24h);
    }
    EXPECT_EQ(job(first).submitted_at, now);
    EXPECT_EQ(job(first).queued_at, now);
    pass(1s);
    const JobId later = submit(spec(4));
    if (reboots) {
      std::vector<RankReport> ranks;
      for (std::int32_t rank = 0; rank < 4; ++rank) ranks.push_back({running, 0, rank, {RankState::started}});
      join("a", 4, std::move(ranks));
    }
    for (const JobId id : {running, first, second, later}) {
      ASSERT_TRUE(job(id).placed()) << id.text();
      all_exit(id);
    }
  }
}

// Its pause is noted for a while after somebody has let it go.
TEST_F(ClockTest, APauseThatNobodyWaitsForIsNotMissed) {
  JobSpec wanted = spec(4);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  all_exit(id, 1);
  all_exit(id, 1);
  happen(Cancel{id, "", false});
  submit(spec(1));
  happen(RemoveJobs{{id}});
  ASSERT_FALSE(state.jobs.contains(id));
  set_clock(1h);
  live(2s);
}

TEST_F(ClockTest, ASubmitThatIsRepeatedIsTheSame) {
  const Submit keyed{{spec(4)}, "key"};
  const auto first = happen(keyed).reply;
  ASSERT_TRUE(first.ok());
  set_clock(48h);
  const auto again = happen(keyed).reply;
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->front(), first->front());
}

TEST_F(ClockTest, WhatHasJustEndedIsKeptUntilThoseWhoWaitForItHaveHeardOfIt) {
  const JobId id = submit(spec(1));
  all_exit(id);
  submit(spec(1));
  set_clock(1h);
  happen(Expire{{.jobs_max = 0}});
  EXPECT_TRUE(state.jobs.contains(id));
}

TEST_F(ClockTest, IsStoredWithWhatItMoves) {
  const JobId id = run_limited();
  now += 1h;
  const Effects effects = happen(ClockSet{{"boot", 1h}});
  EXPECT_TRUE(effects.cluster);
  EXPECT_TRUE(effects.jobs.contains(id));
  EXPECT_EQ(state.clock, (ClockOffset{"boot", 1h}));
  EXPECT_TRUE(happen(ClockSet{{"boot", 1h}}).jobs.empty()) << "once";
}

TEST_F(ClockTest, AGracePeriodIsOverNeitherSoonerNorLater) {
  for (const Duration by : {Duration(10h), Duration(-10h)}) {
    JobSpec slow = spec(1);
    slow.grace = 1h;
    const JobId id = submit(slow);
    all_start(id);
    happen(Cancel{id, ""});
    EXPECT_EQ(job(id).told_at, now);
    live(5s);
    happen(Cancel{id, ""});
    EXPECT_EQ(job(id).told_at, now - 5s) << "who is told again has no more time";
    set_clock(by);
    EXPECT_EQ(job(id).told_at, now - 5s);
    EXPECT_EQ(snapshot(state, now).running.front()->ends_by, now - 5s + 1h);
    happen(Cancel{id, "", false, true});
    EXPECT_EQ(snapshot(state, now).running.front()->ends_by, now) << "nothing is left of it";
    all_exit(id, 137);
    EXPECT_EQ(job(id).told_at, Instant());
  }
}

TEST_F(ClockTest, WhateverANodeSaysNobodyWasToldToEndInTheFuture) {
  JobSpec slow = spec(1);
  slow.grace = 1h;
  const JobId id = submit(slow);
  runs(id, 0s);
  live(3min);
  happen(Cancel{id, ""});
  derive(state, now);  // as after a restart
  runs(id, 0s);
  EXPECT_EQ(job(id).started_at, now);
  EXPECT_EQ(job(id).told_at, now);
}

// A rank that puts another process in the place of its shim would run past its time limit and be charged for
// nothing.
TEST_F(ClockTest, NobodyBeganLaterThanTheControllerKnowsOfIt) {
  const JobId id = run_limited(10min);
  const Instant started_at = job(id).started_at;
  live(5min);
  runs(id, 0s);
  EXPECT_EQ(job(id).started_at, started_at);
  live(1min);
  derive(state, now);  // as after a restart
  const Instant loaded_at = now;
  live(2min);
  runs(id, 0s);
  EXPECT_EQ(job(id).started_at, loaded_at) << "before that its clock may have been another one";
}

// ---- a controller that is started on another machine, or after its machine

TEST_F(ClockTest, NodesTellHowLongTheirRanksHaveRun) {
  for (const Duration by : {Duration(10h), Duration(-10h)}) {
    const JobId id = run_limited(6min);
    live(2min);
    reboot(by);
    happen(Tick{});
    join_with(id, 2min);
    EXPECT_EQ(now - job(id).started_at, 2min);
    live(3min);
    join_with(id, 5min);
    live(30s);
    EXPECT_EQ(job(id).ending, EndCause::none) << "six minutes are not over";
    live(90s);
    join_with(id, 7min);
    live(1s);
    EXPECT_EQ(job(id).ending, EndCause::time_limit);
    all_exit(id, 143);
    EXPECT_EQ(job(id).finished_at - job(id).started_at, 7min + 1s);
  }
}

// It was given its place half an hour before its ranks could start.
TEST_F(ClockTest, TheTimeBeforeItsRanksCouldStartStillCounts) {
  const JobId id = submit(spec(2));
  live(30min);
  happen(Reported{"a", {id, 0, 1, {RankState::started}, {}, -2min}});
  EXPECT_EQ(now - job(id).started_at, 30min) << "nor need that be in the past";
  happen(Reported{"a", {id, 0, 0, {RankState::started}, {}, 90min}});
  EXPECT_EQ(now - job(id).started_at, 30min) << "of another rank nothing was known to compare it with";
  reboot(-5h);
  live(5s);
  join("a", 4,
       {{id, 0, 0, {RankState::started}, {}, 95min}, {id, 0, 1, {RankState::started}, {}, -2min + 10s}});
  EXPECT_EQ(now - job(id).started_at, 30min + 10s);
}

TEST_F(ClockTest, WhatAMessageTakesIsNoJump) {
  const JobId id = run_limited();
  const Instant started_at = job(id).started_at;
  live(20s);
  runs(id, 0s);
  EXPECT_EQ(job(id).started_at, started_at);
  runs(id, -counted_from);
  EXPECT_EQ(job(id).started_at, started_at) << "an agent of an earlier version does not say";
}

// A node that counts wrongly must not make its users pay for a century.
TEST_F(ClockTest, NothingBeganLongBeforeItWasAskedFor) {
  const JobId id = submit(spec(1));
  runs(id, 1s);
  runs(id, std::chrono::hours(24 * 365 * 40));
  live(10s);
  all_exit(id);
  EXPECT_LE(job(id).served, 25.0 * 3600);
}

TEST_F(ClockTest, NothingThatRunsIsFromTheFuture) {
  const JobId id = submit(spec(1));
  all_start(id);
  reboot(-5h);
  EXPECT_EQ(job(id).started_at, now);
  live(10s);
  all_exit(id);
  EXPECT_DOUBLE_EQ(job(id).served, 10.0);
}

TEST_F(ClockTest, WhatAWrongClockHasPutIntoTheFutureDoesNotOutweighAllElse) {
  JobSpec first = spec(1);
  first.user = "ann";
  const JobId early = submit(first);
  all_start(early);
  live(10s);
  all_exit(early);
  reboot(-10 * 365 * 24h);
  join("a", 4);
  const JobId id = submit(first);
  all_start(id);
  const double before = state.index.use_of_user("default", "ann", now).past;
  live(1000s);
  all_exit(id);
  EXPECT_GT(state.index.use_of_user("default", "ann", now).past, before);
}

}  // namespace
}  // namespace tutti::cluster
