#include "control/cluster/blame.hpp"

#include "base/exit_codes.hpp"
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct BlameTest : ClusterTest {
  RankStatus no_space() const {
    RankStatus status{RankState::exited, 126, "could not be started: No space left on device"};
    status.node_fault = true;
    return status;
  }
  RankStatus too_large() const {
    RankStatus status{RankState::exited, 126,
                      "could not be started: the folder that the job ships takes 1 TiB"};
    status.node_fault = status.no_room = true;
    return status;
  }
  RankStatus port_in_use() const {
    RankStatus status{RankState::exited, 126, "could not be started: port 20001 is not free"};
    status.node_fault = status.blameless = true;
    return status;
  }
  JobSpec named(const std::string& name, std::int32_t ranks = 1) const {
    JobSpec wanted = spec(ranks);
    wanted.name = name;
    return wanted;
  }
  JobSpec of_user(const std::string& user, const std::string& name) const {
    JobSpec wanted = named(name);
    wanted.user = user;
    return wanted;
  }
  // Time goes on, and nobody is silent.
  void live(Duration time) {
    for (; time > Duration::zero(); time -= 1s) {
      for (const auto& [name, node] : std::map(state.nodes)) {
        if (!node.lost) happen(Heard{name, node.illness});
      }
      pass(std::min<Duration>(time, 1s));
    }
  }
  std::string home(JobId id) { return job(id).places.front().node; }
  const Node& node(const NodeName& name) { return state.nodes.at(name); }
};

// ---- what a node could not do

TEST_F(BlameTest, WhatTheNodeCouldNotDoIsRetriedAndCountsForNothing) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restarts = 0;
  const JobId id = submit(wanted);
  report(id, 0, no_space());
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_TRUE(job(id).placed()) << "the first time at once";
  EXPECT_EQ(job(id).losses + job(id).failures, 0);
  EXPECT_NE(job(id).reason.find("rank 0 on node a: could not be started: No space left"), std::string::npos)
      << job(id).reason;
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

TEST_F(BlameTest, ANodeThatCannotStartRanksIsSetAsideAndItsWorkGoesElsewhere) {
  join("a", 4);
  join("b", 4);
  std::vector<JobSpec> elements;
  for (std::int32_t index = 0; index < 8; ++index) {
    elements.push_back(spec(1));
    elements.back().array = ArrayPart{JobId(), index, 8, 0};
  }
  const auto ids = happen(Submit{elements}).reply.value();
  const NodeName broken = "a";
  int faults = 0;
  for (int round = 0; round < 3; ++round) {
    for (const JobId id : ids) {
      if (!job(id).placed() || home(id) != broken) continue;
      ++faults;
      report(id, 0, no_space());
    }
  }
  EXPECT_LE(faults, node_faults_max + 4) << "what was under way there, and no more";
  EXPECT_EQ(node_state(state, node(broken)), NodeState::drained);
  EXPECT_NE(reason_of(node(broken)).find("ranks of 3 attempts in a row could not be started on it"),
            std::string::npos);
  for (int round = 0; round < 20; ++round) {
    for (const JobId id : ids) {
      if (!job(id).placed()) continue;
      EXPECT_EQ(home(id), "b");
      all_exit(id);
    }
    live(1s);
  }
  for (const JobId id : ids) EXPECT_EQ(job(id).state, JobState::succeeded) << why(id);
}

TEST_F(BlameTest, ANodeThatWasSetAsideIsTriedAgainEachTimeLater) {
  join("a", 1);
  const JobId id = submit(spec(1));
  const auto fail_once = [&] {
    live(restart_pause_max);
    EXPECT_TRUE(job(id).placed());
    report(id, 0, no_space());
  };
  report(id, 0, no_space());
  fail_once();
  EXPECT_TRUE(node("a").fault.empty());
  live(2s);
  report(id, 0, no_space());
  EXPECT_FALSE(node("a").fault.empty());
  live(set_aside_first - 1s);
  EXPECT_FALSE(node("a").fault.empty());
  live(2s);
  EXPECT_TRUE(node("a").fault.empty()) << "it comes back by itself";
  EXPECT_TRUE(job(id).placed());
  report(id, 0, no_space());
  EXPECT_FALSE(node("a").fault.empty()) << "and need not fail three times more";
  EXPECT_EQ(node("a").back_at, now + 2 * set_aside_first);
  EXPECT_EQ(job(id).held, "");
  happen(Resume{"a"});
  EXPECT_TRUE(node("a").fault.empty());
  live(restart_pause_max);
  all_start(id);
  EXPECT_EQ(node("a").faults, 0);
  all_exit(id);
  EXPECT_EQ(node("a").times_set_aside, 0);
}

TEST_F(BlameTest, ANodeThatSaysItIsIllTakesNoWorkUntilItIsWell) {
  join("a", 1);
  happen(Heard{"a", "its folder has less than 32 MiB of free space"});
  const JobId id = submit(spec(1));
  EXPECT_FALSE(job(id).placed());
  EXPECT_EQ(node_state(state, node("a")), NodeState::drained);
  EXPECT_EQ(reason_of(node("a")), "its folder has less than 32 MiB of free space");
  happen(Heard{"a"});
  EXPECT_TRUE(job(id).placed());
  EXPECT_EQ(node_state(state, node("a")), NodeState::ready);
}

TEST_F(BlameTest, ANodeThatIsIllIsNotTriedAgain) {
  join("a", 1);
  for (int fault = 0; fault < node_faults_max; ++fault) {
    const JobId id = submit(spec(1));
    report(id, 0, no_space());
    happen(Cancel{id, ""});
    if (job(id).placed()) all_exit(id, 143);
  }
  ASSERT_FALSE(node("a").fault.empty());
  happen(Heard{"a", "full"});
  live(3 * set_aside_first);
  EXPECT_FALSE(node("a").fault.empty());
  happen(Heard{"a"});
  pass(1s);
  EXPECT_TRUE(node("a").fault.empty());
}

TEST_F(BlameTest, AJobThatNoNodeCanStartDoesNotTakeAllOfThem) {
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) join(name, 1);
  const JobId id = submit(spec(1));
  std::set<NodeName> set_aside;
  for (int round = 0; round < 1000 && job(id).held.empty(); ++round) {
    if (job(id).placed()) report(id, 0, no_space());
    for (const auto& [name, known] : state.nodes) {
      if (!known.fault.empty()) set_aside.insert(name);
    }
    live(1s);
  }
  EXPECT_NE(job(id).held, "") << "what no node can start may be the job's fault after all";
  EXPECT_LT(set_aside.size(), static_cast<std::size_t>(deadly_nodes_max));
  EXPECT_NE(why(id).find("3 nodes could not start it, and that is all that is wrong with them"),
            std::string::npos)
      << why(id);
  for (const auto& [name, known] : state.nodes) {
    EXPECT_TRUE(known.fault.empty()) << "the nodes come back: " << name;
    EXPECT_EQ(known.faults + known.times_set_aside, 0) << name;
  }
  happen(Release{id});
  for (int round = 0; round < 10 && !job(id).placed(); ++round) live(1s);
  all_start(id);
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

TEST_F(BlameTest, AJobThatIsTooLargeForSomeNodesGoesWhereItFitsAndCostsThemNothing) {
  for (const char* name : {"a", "b", "c"}) join(name, 1);
  const JobId id = submit(spec(1));
  const NodeName fits = "c";
  std::set<NodeName> tried;
  for (int round = 0; round < 10 && home(id) != fits; ++round) {
    ASSERT_TRUE(tried.insert(home(id)).second) << "once on each: " << home(id);
    report(id, 0, too_large());
    for (const auto& [name, known] : state.nodes)
      EXPECT_EQ(known.fault + std::to_string(known.faults), "0") << name;
    live(restart_pause_max);
    ASSERT_TRUE(job(id).placed()) << why(id);
  }
  EXPECT_EQ(home(id), fits);
  all_start(id);
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

TEST_F(BlameTest, AJobThatIsTooLargeForAllNodesIsHeldAndNobodyElseWaits) {
  for (const char* name : {"a", "b"}) join(name, 1);
  const JobId id = submit(spec(1));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(job(id).placed());
    report(id, 0, too_large());
    live(2s);
  }
  EXPECT_NE(why(id).find("is held: no node is left that could run it: rank 0 on node "), std::string::npos)
      << why(id);
  EXPECT_NE(why(id).find("the folder that the job ships takes 1 TiB"), std::string::npos) << why(id);
  const JobId other = submit(named("other", 2));
  EXPECT_TRUE(job(other).placed());
  all_exit(other);
  happen(Release{id});
  EXPECT_TRUE(job(id).placed()) << "somebody has made room";
}

TEST_F(BlameTest, ANodeThatHadNoRoomIsTriedAgainAfterAWhile) {
  join("a", 1);
  join("b", 1);
  happen(Drain{"b"});
  const JobId id = submit(spec(1));
  report(id, 0, too_large());
  live(no_room_kept - 1s);
  EXPECT_FALSE(job(id).placed()) << "it waits for b, which may come back";
  EXPECT_EQ(job(id).held, "");
  live(2s);
  ASSERT_TRUE(job(id).placed()) << why(id);
  EXPECT_EQ(home(id), "a") << "somebody may have made room there";
}

TEST_F(BlameTest, ANodeThatHadNoRoomIsTriedAgainWhenItSaysHello) {
  join("a", 1);
  join("b", 1);
  happen(Drain{"b"});
  const JobId id = submit(spec(1));
  report(id, 0, too_large());
  live(2s);
  EXPECT_FALSE(job(id).placed());
  join("a", 1);
  ASSERT_TRUE(job(id).placed()) << why(id);
  EXPECT_EQ(home(id), "a");
}

TEST_F(BlameTest, AJobThatIsNotTriedAgainSomewhereCanBeReleased) {
  join("a", 1);
  join("b", 1);
  happen(Drain{"b"});
  const JobId id = submit(spec(1));
  report(id, 0, too_large());
  live(2s);
  EXPECT_FALSE(job(id).placed());
  const auto released = happen(Release{id}).reply;
  EXPECT_TRUE(released.ok()) << (released ? "" : released.error().text());
  ASSERT_TRUE(job(id).placed()) << why(id);
  EXPECT_FALSE(happen(Release{id}).reply.ok()) << "it runs";
}

TEST_F(BlameTest, WhereThereWasNoRoomIsForgottenWhileTheJobRunsElsewhere) {
  join("a", 1);
  join("b", 1);
  const JobId id = submit(spec(1));
  const NodeName first = home(id);
  report(id, 0, too_large());
  live(2s);
  ASSERT_TRUE(job(id).placed());
  const NodeName second = home(id);
  ASSERT_NE(second, first);
  all_start(id);
  live(no_room_kept + 1s);
  happen(Drain{second, true});
  report(id, 0, {RankState::exited, 143, ""});
  ASSERT_TRUE(job(id).placed()) << why(id);
  EXPECT_EQ(home(id), first);
}

TEST_F(BlameTest, WhatIsNobodysFaultIsTriedAgainAndCountsForNothing) {
  for (const char* name : {"a", "b", "c", "d"}) join(name, 1);
  const JobId id = submit(spec(1));
  for (int round = 0; round < 8; ++round) {
    ASSERT_TRUE(job(id).placed()) << why(id);
    report(id, 0, port_in_use());
    for (const auto& [name, known] : state.nodes) EXPECT_EQ(known.faults, 0) << name;
    EXPECT_EQ(job(id).held, "");
    live(restart_pause_max);
  }
  EXPECT_EQ(job(id).losses + job(id).failures, 0);
  all_start(id);
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

TEST_F(BlameTest, AGangThatNoNodeCanStartSetsNoneOfThemAside) {
  for (const char* name : {"a", "b", "c", "d"}) join(name, 4);
  const JobId id = submit(spec(16));
  for (int round = 0; round < 20 && job(id).held.empty(); ++round) {
    const std::int32_t attempt = job(id).attempt;
    for (std::int32_t rank = 0; rank < 16 && job(id).placed() && job(id).attempt == attempt; ++rank)
      report(id, rank, no_space());
    for (const auto& [name, known] : state.nodes) EXPECT_TRUE(known.fault.empty()) << name;
    live(1s);
  }
  EXPECT_EQ(job(id).attempt, deadly_attempts_max);
  EXPECT_NE(job(id).held, "");
  const JobId other = submit(spec(16));
  EXPECT_TRUE(job(other).placed());
}

TEST_F(BlameTest, AnArrayThatNoNodeCanStartIsHeldElementByElement) {
  for (const char* name : {"a", "b", "c", "d"}) join(name, 1);
  std::vector<JobSpec> elements;
  for (std::int32_t index = 0; index < 12; ++index) {
    elements.push_back(spec(1));
    elements.back().array = ArrayPart{JobId(), index, 12, 0};
  }
  const auto ids = happen(Submit{elements}).reply.value();
  const auto held = [&] {
    return std::count_if(ids.begin(), ids.end(), [&](JobId id) { return !job(id).held.empty(); });
  };
  std::set<NodeName> set_aside;
  for (int round = 0; round < 100 && held() < 12; ++round) {
    for (const JobId id : ids) {
      if (job(id).placed()) report(id, 0, no_space());
      for (const auto& [name, known] : state.nodes) {
        if (!known.fault.empty()) set_aside.insert(name);
      }
    }
    live(1s);
  }
  EXPECT_EQ(held(), 12);
  EXPECT_TRUE(set_aside.empty()) << *set_aside.begin();
}

TEST_F(BlameTest, NodesThatStartNothingAtAllAreNotTheJobsFault) {
  for (const char* name : {"a", "b", "c"}) join(name, 1);
  for (int round = 0; round < 4; ++round) {
    for (const char* name : {"one", "two", "three"}) {
      const JobId id = submit(named(name + std::to_string(round)));
      if (job(id).placed()) report(id, 0, no_space());
      EXPECT_EQ(job(id).held, "");
      if (!job(id).finished()) happen(Cancel{id, ""});
      if (job(id).placed()) all_exit(id, 143);
    }
  }
  EXPECT_FALSE(node("a").fault.empty());
}

// ---- a node that fails every job quickly

TEST_F(BlameTest, ABlackHoleIsSetAside) {
  join("good", 1);
  join("hole", 1);
  int failed_there = 0;
  for (int round = 0; round < 40 && node("hole").fault.empty(); ++round) {
    const std::string user = round % 2 == 0 ? "ann" : "ben";
    const JobId one = submit(of_user(user, "work"));
    const JobId other = submit(of_user(user, "work"));
    for (const JobId id : {one, other}) {
      all_start(id);
      const bool hole = home(id) == "hole";
      failed_there += hole ? 1 : 0;
      all_exit(id, hole ? 1 : 0);
    }
    live(1s);
  }
  EXPECT_FALSE(node("hole").fault.empty());
  EXPECT_LE(failed_there, static_cast<int>(black_hole_failures) + 1);
  EXPECT_NE(reason_of(node("hole")).find("such jobs work elsewhere"), std::string::npos);
  EXPECT_TRUE(node("good").fault.empty());
}

// A job can fail wherever it likes: what one user's jobs do on a node says nothing about the node.
TEST_F(BlameTest, OneUserTakesNoNodeOutOfService) {
  join("good", 1);
  join("n1", 1);
  const auto round = [&](int number, const std::string& user, const std::string& name) {
    const JobId one = submit(of_user(user, name));
    const JobId other = submit(of_user(user, name));
    for (const JobId id : {one, other}) {
      all_start(id);
      all_exit(id, home(id) == "n1" ? 1 : 0);
    }
    live(1s);
    EXPECT_TRUE(node("n1").fault.empty()) << "after round " << number << ": " << node("n1").fault;
  };
  // Whether or not there is anybody else, and by many names if there is.
  for (int number = 0; number < 40; ++number) round(number, "mallory", "spite");
  const JobId of_another = submit(of_user("ann", "fine"));
  all_start(of_another);
  all_exit(of_another);
  for (int number = 0; number < 40; ++number) round(number, "mallory", "spite" + std::to_string(number % 4));
}

TEST_F(BlameTest, TheOnlyUserOfAClusterIsBelievedWhenTwoProgramsFail) {
  join("good", 1);
  join("hole", 1);
  for (int round = 0; round < 40 && node("hole").fault.empty(); ++round) {
    const std::string name = round % 2 == 0 ? "work" : "play";
    const JobId one = submit(of_user("ann", name));
    const JobId other = submit(of_user("ann", name));
    for (const JobId id : {one, other}) {
      all_start(id);
      all_exit(id, home(id) == "hole" ? 1 : 0);
    }
    live(1s);
  }
  EXPECT_FALSE(node("hole").fault.empty());
}

TEST_F(BlameTest, AProgramThatIsWrongIsNotTheNodesFault) {
  join("a", 1);
  join("b", 1);
  for (int round = 0; round < 40; ++round) {
    const JobId wrong = submit(named("wrong"));
    all_start(wrong);
    all_exit(wrong, 1);
    // Other work is fine, elsewhere and here.
    const JobId fine = submit(named("fine"));
    all_start(fine);
    if (home(fine) == "b") all_exit(fine);
    if (!job(fine).finished()) happen(Cancel{fine, ""});
    if (job(fine).placed()) all_exit(fine, 143);
    live(1s);
  }
  EXPECT_TRUE(node("a").fault.empty());
  EXPECT_TRUE(node("b").fault.empty());
}

TEST_F(BlameTest, WhatRunsElsewhereIsWitnessEnough) {
  join("good", 2);
  // One of each runs well.
  const JobSpec elements[] = {of_user("ann", "train"), of_user("ben", "train")};
  for (const JobSpec& element : elements) all_start(submit(element));
  join("hole", 1);
  live(quick_failure + 1s);
  for (std::size_t failure = 0; failure < black_hole_failures; ++failure) {
    const JobId id = submit(elements[failure % 2]);
    all_start(id);
    all_exit(id, 1);
  }
  live(1s);
  EXPECT_FALSE(node("hole").fault.empty());
}

// ---- pauses

TEST(RestartPause, DoublesUpToItsLimit) {
  EXPECT_EQ(restart_pause(0), 0s);
  EXPECT_EQ(restart_pause(1), 0s);
  EXPECT_EQ(restart_pause(2), restart_pause_first);
  EXPECT_EQ(restart_pause(4), 4 * restart_pause_first);
  EXPECT_EQ(restart_pause(100), restart_pause_max);
  EXPECT_EQ(restart_pause(2'000'000'000), restart_pause_max);
}

TEST_F(BlameTest, RestartsBackOffAndSayUntilWhen) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  all_exit(id, 1);
  EXPECT_TRUE(job(id).placed()) << "the first one comes at once";
  for (int end = 2; end <= 5; ++end) {
    all_exit(id, 1);
    ASSERT_FALSE(job(id).placed());
    EXPECT_EQ(job(id).not_before, now + restart_pause(end));
    EXPECT_NE(why(id).find("waits until " + format_instant(job(id).not_before)), std::string::npos)
        << why(id);
    live(restart_pause(end) - 1ms);
    EXPECT_FALSE(job(id).placed());
    pass(1ms);
    EXPECT_TRUE(job(id).placed());
  }
  live(stable_attempt);
  all_exit(id, 1);
  EXPECT_TRUE(job(id).placed()) << "after an attempt that lasted it begins anew";
}

// Each start of a gang costs the others something, also of one that fails after some seconds each time.
TEST_F(BlameTest, AttemptsThatLastAWhileAndSaveNothingBackOffToo) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  for (int end = 1; end <= 12; ++end) {
    ASSERT_TRUE(job(id).placed());
    all_start(id);
    live(5s);
    all_exit(id, 1);
    EXPECT_EQ(job(id).placed(), end == 1) << "the first one comes at once";
    live(restart_pause(end));
  }
}

// Whatever the clock of the disk says that has it.
TEST_F(BlameTest, AttemptsThatSaveSomethingComeFurtherAndDoNotBackOff) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  for (const Duration wrong : {Duration(), Duration(1h), Duration(-1h)}) {
    for (int end = 0; end < 5; ++end) {
      ASSERT_TRUE(job(id).placed());
      all_start(id);
      for (int save = 0; save < 2; ++save) {
        live(2s);
        RankStatus status{RankState::started};
        status.saved_at = now + wrong - 1s;
        report(id, 0, status);
      }
      all_exit(id, 1);
    }
  }
}

TEST_F(BlameTest, WhatAsksForALaterAttemptBacksOffHoweverLongItsAttemptsLast) {
  join("a", 2);
  JobSpec wanted = spec(2);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  for (int end = 1; end <= 12; ++end) {
    ASSERT_TRUE(job(id).placed());
    all_start(id);
    live(end % 2 == 0 ? 5s : Duration(stable_attempt));
    // Whichever is heard first.
    report(id, 1, {RankState::exited, 1, "rank 0 aborted"});
    report(id, 0, {RankState::exited, exit_later, "no room for the last checkpoint"});
    ASSERT_EQ(job(id).attempt, end);
    EXPECT_EQ(job(id).placed(), end == 1) << "the first one comes at once";
    EXPECT_TRUE(end == 1 || job(id).not_before == now + restart_pause(end)) << end;
    live(restart_pause(end));
  }
}

TEST_F(BlameTest, APauseSurvivesARestartOfTheController) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  all_exit(id, 1);
  all_exit(id, 1);
  ASSERT_FALSE(job(id).placed());
  derive(state, now);
  join("a", 1);
  EXPECT_FALSE(job(id).placed());
  live(restart_pause_first);
  EXPECT_TRUE(job(id).placed());
}

TEST_F(BlameTest, AClockThatIsSetBackDoesNotMakeAPauseLonger) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  all_exit(id, 1);
  all_exit(id, 1);
  ASSERT_FALSE(job(id).placed());
  now -= 2 * restart_pause_max;
  happen(Heard{"a"});
  happen(Tick{});
  EXPECT_TRUE(job(id).placed());
}

TEST_F(BlameTest, APauseThatIsOverDoesNotBeginAgainWhenTheClockIsSetBack) {
  join("a", 1);
  JobSpec wanted = spec(1);
  wanted.restart_on_failure = 1000;
  const JobId id = submit(wanted);
  all_exit(id, 1);
  const JobId other = submit(spec(1));
  all_exit(id, 1);
  ASSERT_TRUE(job(other).placed());
  live(restart_pause_first);
  now -= restart_pause_first;
  happen(Heard{"a"});
  all_exit(other, 0);
  EXPECT_TRUE(job(id).placed());
}

// ---- gangs that kill nodes

TEST_F(BlameTest, AGangThatKillsNodesIsHeldUntilAPersonReleasesIt) {
  for (const char* name : {"a", "b", "c", "d", "e"}) join(name, 1);
  JobSpec wanted = spec(1);
  wanted.restarts = 1000;
  const JobId poison = submit(wanted);
  std::set<NodeName> killed;
  for (int round = 0; round < 20 && job(poison).held.empty(); ++round) {
    if (!job(poison).placed()) {
      live(1s);
      continue;
    }
    all_start(poison);
    killed.insert(home(poison));
    lose(home(poison));
  }
  EXPECT_EQ(killed.size(), static_cast<std::size_t>(deadly_nodes_max));
  EXPECT_EQ(state_name(job(poison)), "held");
  EXPECT_NE(why(poison).find("3 nodes were lost or set aside in 3 of its last attempts; `tutti release 1`"),
            std::string::npos)
      << why(poison);
  live(2 * restart_pause_max);
  EXPECT_FALSE(job(poison).placed()) << "it is not forgotten with time";
  const JobId other = submit(spec(1));
  EXPECT_TRUE(job(other).placed()) << "others go on";
  happen(Release{poison});
  EXPECT_TRUE(job(poison).placed());
  EXPECT_FALSE(happen(Release{poison}).reply.ok()) << "it is not held any more";
  EXPECT_FALSE(happen(Release{JobId(99)}).reply.ok());
}

TEST_F(BlameTest, ANodeThatDiesWhileItsGangIsMovedCountsToo) {
  for (const char* name : {"a", "b", "c", "d"}) join(name, 1);
  JobSpec wanted = spec(1);
  wanted.restarts = 1000;
  const JobId id = submit(wanted);
  for (int loss = 0; loss < deadly_nodes_max; ++loss) {
    ASSERT_EQ(job(id).held, "");
    all_start(id);
    const NodeName dying = home(id);
    happen(Drain{dying, true});
    lose(dying);
  }
  EXPECT_NE(job(id).held, "");
}

TEST_F(BlameTest, ALossNowAndThenHoldsNobody) {
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) join(name, 1);
  JobSpec wanted = spec(1);
  wanted.restarts = 1000;
  const JobId id = submit(wanted);
  for (int loss = 0; loss < 5; ++loss) {
    all_start(id);
    live(stable_attempt + 1s);
    lose(home(id));
    ASSERT_TRUE(job(id).placed()) << why(id);
  }
  EXPECT_EQ(job(id).held, "");
}

TEST_F(BlameTest, ARackThatFailsOnceIsNotTheGangsFault) {
  for (const char* name : {"a", "b", "c", "d"}) join(name, 1);
  JobSpec wanted = spec(4);
  const JobId id = submit(wanted);
  all_start(id);
  // So many at once are doubted for one more lease.
  pass(4s);
  pass(4s);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).held, "");
}

}  // namespace
}  // namespace tutti::cluster
