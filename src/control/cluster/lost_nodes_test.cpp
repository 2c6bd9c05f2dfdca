// What becomes of gangs when their nodes go, come back or are emptied.
#include "control/cluster/step.hpp"

#include <algorithm>

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

TEST_F(ClusterTest, ALostNodeRestartsItsGangsElsewhere) {
  join("a", 2);
  join("b", 2);
  join("c", 2);
  const JobId id = submit(spec(4));
  all_start(id);
  const NodeName victim = job(id).places[0].node;
  const NodeName survivor = job(id).places[2].node;
  now += 2s;
  for (const auto& name : {"a", "b", "c"}) {
    if (name != victim) happen(Heard{name});
  }
  pass(1500ms);
  EXPECT_EQ(node_state(state, state.nodes.at(victim)), NodeState::lost);
  EXPECT_EQ(job(id).state, JobState::running) << "no new attempt before the survivors have ended";
  happen(Reported{survivor, {id, 0, 2, {RankState::exited, 143, ""}}});
  happen(Reported{survivor, {id, 0, 3, {RankState::exited, 143, ""}}});
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).state, JobState::starting);
  for (const auto& place : job(id).places) EXPECT_NE(place.node, victim);
}

TEST_F(ClusterTest, RanksThatFailBecauseANodeWasLostAreNotToBlame) {
  join("a", 1);
  join("b", 1);
  join("c", 1);
  JobSpec wanted = spec(2);
  wanted.restart_on_failure = 0;
  const JobId id = submit(wanted);
  all_start(id);
  const NodeName victim = job(id).places[1].node;
  report(id, 0, {RankState::exited, 1, "its peer is gone"});
  EXPECT_EQ(job(id).attempt, 0);
  now += 3s;
  for (const auto& name : {"a", "b", "c"}) {
    if (name != victim) happen(Heard{name});
  }
  pass(1s);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).state, JobState::starting);
  EXPECT_EQ(job(id).failures, 0);
  EXPECT_NE(job(id).last_end.find("node " + std::string(victim) + " was lost"), std::string::npos)
      << job(id).last_end;
}

TEST_F(ClusterTest, ALostNodeThatComesBackHasItsOldRanksEnded) {
  join("a", 1);
  join("b", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  const NodeName victim = job(id).places[0].node;
  const NodeName other = victim == "a" ? "b" : "a";
  now += 3s;
  happen(Heard{other});
  pass(1s);
  ASSERT_EQ(job(id).attempt, 1);
  sends.clear();
  join(victim, 1, {{id, 0, 0, {RankState::started}}});
  ASSERT_EQ(sends.size(), 1U);
  const auto& end = std::get<EndRanks>(sends[0]);
  EXPECT_EQ(end.attempt, 0);
  EXPECT_EQ(end.node, victim);
  // Its end is acknowledged and changes nothing.
  happen(Reported{victim, {id, 0, 0, {RankState::exited, 137, ""}}});
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(sent<ForgetRanks>(), 1U);
}

// They would save beside the next attempt for as long as their grace period is.
TEST_F(ClusterTest, OldRanksHaveTimeToSaveOnlyUntilSomebodyGoesOnWithIt) {
  join("a", 1);
  JobSpec slow = spec(1);
  slow.grace = 2h;
  const JobId id = submit(slow);
  all_start(id);
  lose("a");
  const auto told_at_once = [&] {
    const auto* end = sends.empty() ? nullptr : std::get_if<EndRanks>(&sends.back());
    EXPECT_TRUE(end != nullptr && end->attempt == 0 && end->node == "a");
    return end != nullptr && end->at_once;
  };
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  EXPECT_FALSE(told_at_once()) << "what it saves is what the next one goes on with";
  EXPECT_NE(reason_of(state.nodes.at("a")).find("still runs ranks of job " + id.text()), std::string::npos);
  sends.clear();
  join("b", 1);
  ASSERT_TRUE(job(id).placed());
  EXPECT_TRUE(told_at_once()) << "somebody goes on now";
  happen(Reported{"a", {id, 0, 0, {RankState::started}}});
  EXPECT_TRUE(told_at_once()) << "also if it is told again";
}

// The others of its gang are still saving: what they all write together is not whole without it.
TEST_F(ClusterTest, ARankThatIsBackWhileItsGangEndsHasItsGracePeriod) {
  join("a", 1);
  join("b", 1);
  JobSpec slow = spec(2);
  slow.grace = 60s;
  const JobId id = submit(slow);
  all_start(id);
  lose("b");
  ASSERT_TRUE(job(id).placed()) << "rank 0 has not ended yet";
  sends.clear();
  join("b", 1, {{id, 0, 1, {RankState::started}}});
  const auto is_end = [](const Send& send) { return std::holds_alternative<EndRanks>(send); };
  const auto told = std::find_if(sends.begin(), sends.end(), is_end);
  ASSERT_NE(told, sends.end());
  EXPECT_FALSE(std::get<EndRanks>(*told).at_once);
  happen(Cancel{id, "", false, true});
  sends.clear();
  happen(Reported{"b", {id, 0, 1, {RankState::started}}});
  ASSERT_FALSE(sends.empty());
  EXPECT_TRUE(std::get<EndRanks>(sends.back()).at_once) << "nobody is to save any more";
}

// Whatever had ended it: a node that was drained, and then lost, had ranks that ran on beside the next
// attempt.
TEST_F(ClusterTest, OldRanksOfAGangThatWasDrainedAreKilledWhenItGoesOn) {
  join("a", 1);
  JobSpec slow = spec(1);
  slow.grace = 2h;
  const JobId id = submit(slow);
  all_start(id);
  happen(Drain{"a", true});
  ASSERT_EQ(job(id).ending, EndCause::drained);
  lose("a");
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  sends.clear();
  join("b", 1);
  ASSERT_EQ(job(id).attempt, 1);
  ASSERT_TRUE(job(id).placed());
  EXPECT_TRUE(std::any_of(sends.begin(), sends.end(), [](const Send& send) {
    const auto* end = std::get_if<EndRanks>(&send);
    return end != nullptr && end->at_once && end->node == "a" && end->attempt == 0;
  }));
}

// Its job may wait for that very node, and with it everybody else.
TEST_F(ClusterTest, OldRanksKeepTheirNodeFromWorkForAMinuteAtMost) {
  join("a", 1);
  JobSpec slow = spec(1);
  slow.grace = 24h;
  const JobId id = submit(slow);
  all_start(id);
  lose("a");
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  const auto kills = [&] {
    sends.clear();
    happen(Heard{"a"});
    happen(Tick{});
    return std::count_if(sends.begin(), sends.end(), [](const Send& send) {
      const auto* end = std::get_if<EndRanks>(&send);
      return end != nullptr && end->at_once && end->node == "a";
    });
  };
  EXPECT_EQ(kills(), 0) << "it saves";
  for (Duration waited{}; waited <= stray_time_max; waited += 1s) {
    now += 1s;
    happen(Heard{"a"});
  }
  EXPECT_EQ(kills(), 1);
  EXPECT_EQ(kills(), 0) << "it was told just now";
  now += strays_told_every;
  EXPECT_EQ(kills(), 1) << "that may not have come through";
  happen(Reported{"a", {id, 0, 0, {RankState::exited, 137, ""}}});
  EXPECT_TRUE(job(id).placed()) << "the node takes work again, its own first";
  now += strays_told_every;
  EXPECT_EQ(kills(), 0);
}

TEST_F(ClusterTest, OldRanksOfACancelledJobAreKilled) {
  join("a", 1);
  JobSpec slow = spec(1);
  slow.grace = 2h;
  const JobId id = submit(slow);
  all_start(id);
  lose("a");
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  sends.clear();
  happen(Cancel{id, ""});
  ASSERT_EQ(job(id).state, JobState::cancelled);
  EXPECT_TRUE(std::any_of(sends.begin(), sends.end(), [](const Send& send) {
    const auto* end = std::get_if<EndRanks>(&send);
    return end != nullptr && end->at_once && end->node == "a";
  }));
}

TEST_F(ClusterTest, ANodeTakesNoWorkWhileRanksOfAnOldAttemptRunOnIt) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  lose("a");
  ASSERT_EQ(job(id).attempt, 1);
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  EXPECT_FALSE(job(id).placed()) << "the old rank still uses the device";
  happen(Reported{"a", {id, 0, 0, {RankState::exited, 143, ""}}});
  EXPECT_TRUE(job(id).placed());
}

// The survivors of the attempt are still being ended when the lost node comes back with its part of it.
TEST_F(ClusterTest, AnOldRankOfAnAttemptThatIsNotOverYetKeepsItsNodeBusyToo) {
  join("a", 2);
  join("b", 1);
  JobSpec spread = spec(2);
  spread.shape.ranks_per_node = 1;
  const JobId id = submit(spread);
  all_start(id);
  lose("a");
  const std::int32_t rank = job(id).places[0].node == "a" ? 0 : 1;
  join("a", 2, {{id, 0, rank, {RankState::started}}});
  const JobId other = submit(spec(1));
  EXPECT_FALSE(job(other).placed());
  happen(Reported{"a", {id, 0, rank, {RankState::exited, 143, ""}}});
  EXPECT_TRUE(job(other).placed());
}

// It says Hello with nothing, because a start that was sent before it was given up has not reached it yet.
TEST_F(ClusterTest, ANodeTakesNoWorkBeforeItHasAnsweredForWhatItWasGivenUpWith) {
  join("a", 1);
  const JobId id = submit(spec(1));
  lose("a");
  ASSERT_EQ(job(id).attempt, 1);
  sends.clear();
  join("a", 1);
  ASSERT_EQ(sends.size(), 1U);
  EXPECT_EQ(std::get<EndRanks>(sends[0]).attempt, 0);
  EXPECT_FALSE(job(id).placed());
  State again = state;
  derive(again, now);
  keep_strays(again, state);
  EXPECT_EQ(again.nodes.at("a").strays.size(), 1U) << "nor after the state was loaded again";
  happen(Reported{"a", {id, 0, 0, {RankState::started}}});
  EXPECT_FALSE(job(id).placed());
  happen(Reported{"a", {id, 0, 0, {RankState::exited, 143, ""}}});
  EXPECT_TRUE(job(id).placed());
}

TEST_F(ClusterTest, ANodeTakesNoWorkBeforeItHasSaidWhatRunsOnIt) {
  join("a", 1);
  derive(state, now);
  const JobId id = submit(spec(1));
  EXPECT_FALSE(job(id).placed()) << "the controller was restarted and knows nothing of the node's ranks";
  happen(Heard{"a"});
  EXPECT_FALSE(job(id).placed());
  join("a", 1);
  EXPECT_TRUE(job(id).placed());
}

// The start may be under way to the node when it says what it has: that it is not there yet does not mean
// that it will not come.
TEST_F(ClusterTest, ARankThatMayStillStartIsNotGivenUpBeforeTheNodeHasAnswered) {
  join("a", 1);
  const JobId id = submit(spec(1));
  happen(Cancel{id, ""});
  sends.clear();
  join("a", 1);
  EXPECT_EQ(job(id).state, JobState::starting);
  ASSERT_EQ(sends.size(), 1U);
  EXPECT_EQ(std::get<EndRanks>(sends[0]).ranks, std::vector<std::int32_t>{0});
  report(id, 0, {RankState::exited, 143, "it was ended before it started"});
  EXPECT_EQ(job(id).state, JobState::cancelled);
}

TEST_F(ClusterTest, ALostNodeThatIsHeardAgainIsAskedForAHello) {
  join("a", 1);
  pass(4s);
  ASSERT_TRUE(state.nodes.at("a").lost);
  sends.clear();
  happen(Heard{"a"});
  EXPECT_EQ(sent<AskHello>(), 1U);
  EXPECT_TRUE(state.nodes.at("a").lost) << "until it has said what it runs";
}

TEST_F(ClusterTest, AnAgentThatRestartsKeepsItsRanks) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  sends.clear();
  join("a", 1, {{id, 0, 0, {RankState::started}}});
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_TRUE(sends.empty());
  join("a", 1, {{id, 0, 0, {RankState::exited, 0, ""}}});
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

TEST_F(ClusterTest, AStartThatWasLostIsSentAgain) {
  join("a", 1);
  const JobId id = submit(spec(1));
  sends.clear();
  join("a", 1);
  EXPECT_EQ(sent<StartRanks>(), 1U);
  EXPECT_EQ(job(id).attempt, 0);
}

TEST_F(ClusterTest, ARankThatVanishedIsRestarted) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  join("a", 1);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).losses, 1);
}

TEST_F(ClusterTest, APlannedStopOfItsNodesCostsAJobNothing) {
  join("a", 1);
  join("b", 1);
  JobSpec once = spec(2);
  once.restarts = 0;
  const JobId id = submit(once);
  all_start(id);
  RankStatus stopped{RankState::exited, 137, "it was shut down with its node"};
  stopped.stopped = true;
  // The other one has failed because it missed its peer, and was heard first.
  report(id, 1, {RankState::exited, 1, "a peer is gone"});
  report(id, 0, stopped);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).losses, 0);
  EXPECT_EQ(job(id).failures, 0);
  EXPECT_EQ(job(id).bad_ends, 0);
  EXPECT_TRUE(job(id).placed()) << "it starts again at once";
}

TEST_F(ClusterTest, ADrainedNodeTakesNothingNewAndCanBeEmptied) {
  join("a", 1);
  join("b", 1);
  const JobId id = submit(spec(1));
  const NodeName home = job(id).places[0].node;
  all_start(id);
  happen(Drain{home, false});
  EXPECT_EQ(node_state(state, state.nodes.at(home)), NodeState::draining);
  EXPECT_TRUE(job(id).placed());
  happen(Drain{home, true});
  all_exit(id, 143);
  EXPECT_EQ(node_state(state, state.nodes.at(home)), NodeState::drained);
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).losses, 0) << "a move is no loss";
  EXPECT_NE(job(id).places[0].node, home);
  happen(Resume{home});
  EXPECT_EQ(node_state(state, state.nodes.at(home)), NodeState::ready);
}

TEST_F(ClusterTest, RanksThatEndAfterANoticeAreStartedAgainWhichCountsAsNothing) {
  join("a", 2);
  join("b", 2);
  JobSpec wanted = elastic_spec({4, 2});
  wanted.restarts = 0;
  const JobId id = submit(wanted);
  all_start(id);
  happen(Drain{"b", true});
  EXPECT_EQ(sent<EndRanks>(), 2U) << "the whole gang has notice, not only the ranks of the drained node";
  for (const auto& [rank, code] : {std::pair(0, 0), std::pair(1, 143), std::pair(2, 0), std::pair(3, 1)}) {
    EXPECT_EQ(job(id).attempt, 0);
    report(id, rank, {RankState::exited, code, ""});
  }
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(job(id).losses, 0);
  EXPECT_EQ(job(id).failures, 0);
  ASSERT_EQ(job(id).places.size(), 2U);
  for (const RankPlace& place : job(id).places) EXPECT_EQ(place.node, "a");
  all_exit(id);
  EXPECT_EQ(job(id).state, JobState::succeeded) << "without notice an end is the end";
}

}  // namespace
}  // namespace tutti::cluster
