#include "control/cluster/retention.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct RetentionTest : ClusterTest {
  Retention keep{.jobs_max = 10, .jobs_age_min = 0s, .jobs_age_max = 24h, .nodes_age_max = 24h};

  Effects expire() { return happen(Expire{keep}); }
  JobId finished_job(const JobSpec& what) {
    const JobId id = submit(what);
    happen(Cancel{id, "", false});
    return id;
  }
};

TEST_F(RetentionTest, OldJobsAreForgotten) {
  const JobId old = finished_job(spec(1));
  now += 23h;
  const JobId fresh = finished_job(spec(1));
  EXPECT_TRUE(expire().jobs.empty()) << "not yet";
  now += 2h;
  EXPECT_EQ(expire().jobs, std::set{old});
  EXPECT_FALSE(state.jobs.contains(old));
  EXPECT_TRUE(state.jobs.contains(fresh));
}

TEST_F(RetentionTest, TheOldestAreForgottenWhenThereAreTooMany) {
  for (int at = 0; at < 25; ++at) {
    now += 1s;
    finished_job(spec(1));
  }
  EXPECT_EQ(expire().jobs.size(), 15U);
  EXPECT_EQ(state.jobs.begin()->first, JobId(16));
  keep.jobs_age_max = Duration::zero();
  now += 1000h;
  EXPECT_TRUE(expire().jobs.empty()) << "without an age they stay for ever";
}

TEST_F(RetentionTest, TheOldestAreForgottenWhenTheyHaveTooManyRanks) {
  keep.ranks_max = 10;
  join("a", 4);
  std::vector<JobId> jobs;
  for (int at = 0; at < 4; ++at) {
    jobs.push_back(submit(spec(4)));
    all_start(jobs.back());
    all_exit(jobs.back());
    now += 1s;
  }
  ASSERT_EQ(state.ended.ranks(), 16U);
  EXPECT_EQ(expire().jobs, (std::set{jobs[0], jobs[1]}));
  EXPECT_EQ(state.ended.ranks(), 8U);
  EXPECT_TRUE(expire().jobs.empty());
}

// Bob's job must not be forgotten because Alice is busy.
TEST_F(RetentionTest, WhoHasTheMostIsForgottenFirstAndNobodyLosesAnEqualPart) {
  const auto of = [this](const char* user) {
    JobSpec one = spec(1);
    one.user = user;
    now += 1s;
    return finished_job(one);
  };
  std::set<JobId> bobs{of("bob"), of("bob"), of("bob")};
  std::vector<JobId> alices;
  for (int at = 0; at < 30; ++at) alices.push_back(of("alice"));
  std::set<JobId> carols{of("carol"), of("carol"), of("carol"), of("carol"), of("carol")};
  const auto forgotten = expire().jobs;
  EXPECT_EQ(forgotten.size(), 28U);
  EXPECT_EQ(state.ended.of_user("bob"), 3U) << "the oldest of all, and no more than his part";
  EXPECT_EQ(state.ended.of_user("alice"), 4U);
  EXPECT_EQ(state.ended.of_user("carol"), 3U);
  EXPECT_TRUE(forgotten.contains(alices[25]) && !forgotten.contains(alices[26])) << "her oldest";
  EXPECT_TRUE(invariants(state).ok());
}

// What Alice has just ended cannot go yet: that others lose theirs in its place is no way out.
TEST_F(RetentionTest, WhatMayNotGoYetIsWaitedForAndNotPaidForByOthers) {
  keep.jobs_age_min = 10s;
  JobSpec bobs = spec(1);
  bobs.user = "bob";
  const JobId precious = finished_job(bobs);
  now += 1h;
  std::vector<JobId> alices;
  for (int at = 0; at < 40; ++at) alices.push_back(finished_job(spec(1)));
  EXPECT_TRUE(expire().jobs.empty());
  now += 11s;
  EXPECT_EQ(expire().jobs.size(), 31U);
  EXPECT_TRUE(state.jobs.contains(precious));
}

TEST_F(RetentionTest, WhatIsNoLongerKeptIsToldFromWhatNeverWas) {
  keep.jobs_max = 1;
  const JobId gone = finished_job(spec(1));
  const JobId kept = finished_job(spec(1));
  expire();
  ASSERT_FALSE(state.jobs.contains(gone));
  const auto refusal = [&](JobId before) {
    JobSpec after = spec(1);
    after.after = {{before, true}};
    const auto reply = happen(Submit{{after}}).reply;
    return reply ? std::string() : reply.error().text();
  };
  EXPECT_EQ(refusal(gone), "what it is to come after : job " + gone.text() + " is no longer kept");
  EXPECT_EQ(refusal(JobId(99)), "what it is to come after : there is no job 99");
  EXPECT_EQ(happen(Cancel{gone, "", false}).reply.error().text(),
            "job " + gone.text() + " is no longer kept");
  EXPECT_EQ(array_elements(state, gone).error().text(), "job " + gone.text() + " is no longer kept");
  EXPECT_EQ(no_job(state, JobId(kept.number() + 1)).text(),
            "there is no job " + JobId(kept.number() + 1).text());
}

TEST_F(RetentionTest, ElementsOfAnArrayStayUntilAllOfThemHaveEnded) {
  keep.jobs_max = 1;
  std::vector<JobSpec> elements(3, spec(1, 0));
  for (std::int32_t index = 0; index < 3; ++index)
    elements[static_cast<std::size_t>(index)].array = ArrayPart{JobId(), index, 3, 0};
  const auto ids = happen(Submit{elements}).reply.value();
  happen(Cancel{ids[0], "", false});
  now += 1s;
  happen(Cancel{ids[2], "", false});
  now += 1s;
  const JobId other = finished_job(spec(1));
  const JobId newest = finished_job(spec(1));
  now += 48h;
  EXPECT_EQ(expire().jobs, std::set{other}) << "neither by their number nor by their age";
  EXPECT_FALSE(happen(RemoveJobs{{ids[0]}}).reply.ok()) << "nor because somebody says so";
  EXPECT_TRUE(state.jobs.contains(ids[0]));
  happen(Cancel{ids[1], "", false});
  now += 48h;
  EXPECT_EQ(expire().jobs, (std::set{ids[0], ids[1], ids[2]}));
  EXPECT_TRUE(state.jobs.contains(newest));
}

TEST_F(RetentionTest, WhatHasJustEndedStaysForThoseWhoWaitForItAlsoWhenTheClockIsSetBack) {
  keep.jobs_max = 1;
  keep.jobs_age_min = 10s;
  const JobId before = finished_job(spec(1));
  now -= 1h;
  const JobId just_ended = finished_job(spec(1));
  const JobId newest = finished_job(spec(1));
  EXPECT_TRUE(expire().jobs.empty());
  now += 11s;
  EXPECT_EQ(expire().jobs, std::set{just_ended});
  EXPECT_TRUE(state.jobs.contains(before));
  EXPECT_TRUE(state.jobs.contains(newest));
}

TEST_F(RetentionTest, WhatIsDueGoesBitByBit) {
  keep.jobs_max = 1;
  for (std::size_t at = 0; at < expired_per_step_min + 50; ++at) finished_job(spec(1));
  EXPECT_EQ(expire().jobs.size(), expired_per_step_min);
  EXPECT_EQ(expire().jobs.size(), 49U);
  EXPECT_TRUE(expire().jobs.empty());
}

struct ManyFinishedTest : RetentionTest {
  // Submits an array and cancels it; what the submit was refused with.
  std::string come_and_go(std::int32_t count, const std::string& user = "ada") {
    JobSpec one = spec(1);
    one.user = user;
    Submit array;
    for (std::int32_t index = 0; index < count; ++index) {
      array.specs.push_back(one);
      array.specs.back().array = ArrayPart{{}, index, count, 0};
    }
    const auto ids = step(state, now, array).reply;
    if (!ids) return ids.error().text() + " / " + ids.error().remedy();
    EXPECT_TRUE(step(state, now, Cancel{ids->front(), "", true}).reply.ok());
    return "";
  }
};

// Whoever submits and cancels in a circle.
TEST_F(ManyFinishedTest, WhatIsOverGoesAsFastAsItComes) {
  constexpr std::int32_t jobs_a_tick = 1'000;
  std::size_t most_in_a_step = 0;
  for (int tick = 0; tick < 150; ++tick) {
    ASSERT_EQ(come_and_go(jobs_a_tick), "");
    most_in_a_step = std::max(most_in_a_step, step(state, now, Expire{keep}).jobs.size());
  }
  EXPECT_LE(state.ended.jobs(), keep.jobs_max + expired_share * jobs_a_tick + jobs_a_tick);
  EXPECT_LE(most_in_a_step, expired_per_step_max) << "and still bit by bit";
  for (int tick = 0; tick < 150; ++tick) step(state, now, Expire{keep});
  EXPECT_EQ(state.ended.jobs(), keep.jobs_max) << "no more than has to";
  EXPECT_TRUE(invariants(state).ok());
}

TEST_F(ManyFinishedTest, WithTooManyThatAreStillToBeRemovedNothingIsTaken) {
  keep.jobs_age_min = 10s;
  step(state, now, Expire{keep});
  std::string refused;
  for (int arrays = 0; refused.empty() && arrays < 100; ++arrays) refused = come_and_go(array_elements_max);
  EXPECT_EQ(
      refused,
      "there are 110000 finished jobs, 110000 of them of user 'ada', and 10 are to be kept: what is over "
      "is still being removed / submit again in some seconds");
  EXPECT_FALSE(come_and_go(1).empty());
  EXPECT_EQ(come_and_go(1, "bob"), "") << "the others notice nothing";
  now += 11s;
  step(state, now, Expire{keep});
  step(state, now, Expire{keep});
  step(state, now, Expire{keep});
  EXPECT_EQ(come_and_go(1), "") << "there is room again";
}

TEST_F(ManyFinishedTest, ManyUsersTogetherAreBoundedToo) {
  keep.jobs_age_min = 10s;
  step(state, now, Expire{keep});
  std::string refused;
  for (int arrays = 0; refused.empty() && arrays < 100; ++arrays)
    refused = come_and_go(array_elements_max, "user" + std::to_string(arrays));
  EXPECT_NE(refused.find("there are 210000 finished jobs, 0 of them of user 'user21'"), std::string::npos)
      << refused;
}

TEST_F(RetentionTest, WhatIsNotOverStays) {
  keep.jobs_max = 0;
  join("a", 1);
  const JobId running = submit(spec(1));
  const JobId waiting = submit(spec(1));
  const JobId over = finished_job(spec(1));
  finished_job(spec(1));
  now += 1000h;
  EXPECT_EQ(expire().jobs, std::set{over});
  EXPECT_TRUE(state.jobs.contains(running));
  EXPECT_TRUE(state.jobs.contains(waiting));
}

TEST_F(RetentionTest, WhatDepartedUsersHadIsForgottenWhenItWeighsNothing) {
  keep.jobs_max = 0;
  join("a", 1);
  JobSpec of_ann = spec(1);
  of_ann.user = "ann";
  const JobId id = submit(of_ann);
  all_start(id);
  finished_job(spec(1));  // waits, and so had nothing
  now += 1h;
  all_exit(id);
  expire();
  const QueueUser ann{default_queue, "ann"};
  ASSERT_EQ(state.past_use.at(ann).amount, 3600);
  now += 11 * usage_half_life;
  expire();
  EXPECT_TRUE(state.past_use.contains(ann));
  now += usage_half_life;
  keep.forgets_use = false;
  expire();
  EXPECT_TRUE(state.past_use.contains(ann)) << "the clock may be wrong";
  keep.forgets_use = true;
  EXPECT_TRUE(expire().past_use.contains(ann)) << "it goes from the store too";
  EXPECT_TRUE(state.past_use.empty());
  EXPECT_EQ(state.index.users_remembered(), 0U);
}

TEST_F(RetentionTest, ManyUsersAreLookedAtBitByBit) {
  for (std::size_t user = 0; user < 2 * users_looked_at_per_step_max + 10; ++user)
    state.past_use[{default_queue, "user" + std::to_string(user)}] = {0.5, now};
  EXPECT_EQ(expire().past_use.size(), users_looked_at_per_step_max);
  state.past_use[{default_queue, "a"}] = {0.5, now};
  for (int step = 0; step < 3; ++step) expire();
  EXPECT_TRUE(state.past_use.empty()) << "also who came before those that were looked at";
}

// Else a restart would give an old id to a new job, which would find the logs and checkpoints of the old one.
TEST_F(RetentionTest, IdsGoOnFromTheNewestJobAfterARestart) {
  keep.jobs_max = 0;
  finished_job(spec(1));
  const JobId newest = finished_job(spec(1));
  now += 1000h;
  expire();
  ASSERT_EQ(state.jobs.size(), 1U);
  EXPECT_FALSE(happen(RemoveJobs{{newest}}).reply.ok());
  State loaded;
  loaded.jobs = state.jobs;
  derive(loaded, now);
  EXPECT_EQ(loaded.next_job, newest.number() + 1);
}

TEST_F(RetentionTest, ADependencyThatIsForgottenWasMet) {
  join("a", 1);
  const JobId before = submit(spec(1));
  JobSpec after = spec(1);
  after.after = {{before, true}};
  const JobId blocker = submit(spec(1));
  const JobId waiting = submit(after);
  all_start(before);
  all_exit(before);
  keep.jobs_max = 0;
  expire();
  EXPECT_FALSE(state.jobs.contains(before));
  all_start(blocker);
  all_exit(blocker);
  EXPECT_EQ(job(waiting).state, JobState::starting);
}

TEST_F(RetentionTest, AnArrayThatHasLostItsFirstElementsIsStillOne) {
  join("a", 1);
  std::vector<JobSpec> specs(3, spec(1));
  for (std::int32_t at = 0; at < 3; ++at) specs[static_cast<std::size_t>(at)].array = ArrayPart{{}, at, 3, 0};
  const auto ids = *happen(Submit{specs}).reply;
  all_start(ids[0]);
  all_exit(ids[0]);
  // As earlier versions forgot it, and as it goes when more of them are kept than may be.
  const Job forgotten = job(ids[0]);
  state.ended.remove(forgotten);
  state.bytes.goes(forgotten);
  state.jobs.erase(ids[0]);
  EXPECT_EQ(*array_elements(state, ids[2]), (std::vector{ids[1], ids[2]}));
  EXPECT_EQ(happen(Cancel{ids[1], "", true}).reply->size(), 2U);
}

TEST_F(RetentionTest, JobsAreRemovedWhenSomebodySaysSo) {
  const JobId first = finished_job(spec(1));
  const JobId second = finished_job(spec(1));
  const JobId waiting = submit(spec(1));
  EXPECT_FALSE(happen(RemoveJobs{{first, waiting}}).reply.ok());
  EXPECT_TRUE(state.jobs.contains(first)) << "all or none";
  EXPECT_EQ(*happen(RemoveJobs{{first, second, first, JobId(77)}}).reply, (std::vector{first, second}));
  EXPECT_EQ(state.jobs.size(), 1U);
}

// Else a restart would forget who had how much.
TEST_F(RetentionTest, WhatForgottenJobsHadStillCounts) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  now += 5h;
  happen(Heard{"a"});
  all_exit(id);
  finished_job(spec(1));
  const double before = state.index.use_of_queue(default_queue, now).past;
  ASSERT_GT(before, 0);
  keep.jobs_max = 0;
  const Effects effects = expire();
  EXPECT_EQ(effects.past_use, (std::set<QueueUser>{{default_queue, ""}}));
  State loaded;
  loaded.jobs = state.jobs;
  loaded.nodes = state.nodes;
  loaded.past_use = state.past_use;
  derive(loaded, now);
  EXPECT_NEAR(loaded.index.use_of_queue(default_queue, now).past, before, before * 1e-9);
}

TEST_F(RetentionTest, LostNodesAreForgottenUnlessAPersonDrainedThem) {
  for (const char* name : {"a", "b", "c"}) join(name, 1);
  happen(FabricMeasured{{{"a", "b", 1us, Bytes(1000), {}}, {"b", "c", 1us, Bytes(1000), {}}}});
  happen(Drain{"c", false});
  for (int leases = 0; leases < 2; ++leases) {
    now += lease;
    happen(Heard{"a"});
    pass(1s);
  }
  ASSERT_TRUE(state.nodes.at("b").lost);
  ASSERT_TRUE(state.nodes.at("c").lost);
  now += 23h;
  EXPECT_TRUE(expire().nodes.empty());
  now += 2h;
  const Effects gone = expire();
  EXPECT_EQ(gone.nodes, std::set<NodeName>{"b"});
  EXPECT_TRUE(gone.fabric);
  EXPECT_TRUE(state.fabric->empty());
  EXPECT_TRUE(state.nodes.contains("c"));
  // Heard once more on its old connection, it is asked for everything, as one that is lost is.
  sends.clear();
  happen(Heard{"b"});
  EXPECT_EQ(sent<AskHello>(), 1U);
  join("b", 1);
  EXPECT_FALSE(state.nodes.at("b").lost);
}

TEST_F(RetentionTest, ANodeIsRemovedWhenItIsLostAndHasNoRanks) {
  join("a", 1);
  join("b", 1);
  const JobId gang = submit(spec(2));
  all_start(gang);
  EXPECT_FALSE(happen(RemoveNode{"b"}).reply.ok()) << "it is alive";
  EXPECT_FALSE(happen(RemoveNode{"z"}).reply.ok());
  lose("b");
  EXPECT_FALSE(happen(RemoveNode{"b"}).reply.ok()) << "the rest of its gang is still being ended";
  report(gang, job(gang).places[0].node == "a" ? 0 : 1, {RankState::exited, 143, ""});
  EXPECT_TRUE(happen(RemoveNode{"b"}).reply.ok());
  EXPECT_FALSE(state.nodes.contains("b"));
  // What it still ran is ended when it comes back.
  sends.clear();
  join("b", 1, {{gang, 0, 1, {RankState::started}}});
  EXPECT_EQ(sent<EndRanks>(), 1U);
}

TEST_F(RetentionTest, WhatFreesRoomIsKnown) {
  join("a", 1);
  const JobId id = submit(spec(1));
  all_start(id);
  const Reported exited{"a", {id, 0, 0, {RankState::exited, 1, ""}}};
  EXPECT_TRUE(frees_room(state, Cancel{id, "", false}));
  EXPECT_TRUE(frees_room(state, Drain{"a", true}));
  EXPECT_TRUE(frees_room(state, RemoveNode{"a"}));
  EXPECT_TRUE(frees_room(state, RevokeToken{"t"}) && frees_room(state, RemovePerson{"ada"}));
  EXPECT_TRUE(frees_room(state, SetPerson{.name = "ada", .blocked = true}));
  EXPECT_FALSE(frees_room(state, SetPerson{.name = "ada", .blocked = false}));
  EXPECT_FALSE(frees_room(state, SetPerson{.name = "ada", .grants = std::vector<people::Grant>()}));
  EXPECT_FALSE(frees_room(state, Submit{{spec(1)}}));
  EXPECT_FALSE(frees_room(state, exited));
  happen(Cancel{id, "", false});
  EXPECT_TRUE(frees_room(state, exited)) << "the end that somebody waits for";
}

// 6,048,000 jobs, of which never more are there than are to be kept.
TEST(Retention, AWeekOfTenJobsASecondLeavesABoundedState) {
  constexpr std::int32_t jobs_a_minute = 600;
  const Retention keep;
  State state;
  Instant now{1000s};
  derive(state, now);
  JobSpec one = spec(1);
  std::vector<JobSpec> specs(jobs_a_minute, one);
  for (std::int32_t at = 0; at < jobs_a_minute; ++at)
    specs[static_cast<std::size_t>(at)].array = ArrayPart{{}, at, jobs_a_minute, 0};
  std::size_t most = 0;
  std::set<JobId> stored;
  const auto happen = [&](const Event& event) {
    const Effects effects = step(state, now, event);
    for (const JobId id : effects.jobs) {
      if (state.jobs.contains(id)) {
        stored.insert(id);
      } else {
        stored.erase(id);
      }
    }
    most = std::max(most, state.jobs.size());
    return effects.reply;
  };
  for (int minute = 0; minute < 7 * 24 * 60; ++minute) {
    const auto ids = happen(Submit{specs});
    ASSERT_TRUE(ids.ok());
    ASSERT_TRUE(happen(Cancel{ids->front(), "", true}).ok());
    for (int tick = 0; tick < 12; ++tick) {
      now += 5s;
      ASSERT_TRUE(happen(Expire{keep}).ok());
    }
  }
  EXPECT_EQ(state.next_job, 1U + 7U * 24 * 60 * jobs_a_minute);
  EXPECT_LE(most, keep.jobs_max + jobs_a_minute);
  EXPECT_EQ(stored.size(), state.jobs.size()) << "the store forgets with the state";
  EXPECT_LE(state.jobs.size(), keep.jobs_max);
  EXPECT_TRUE(invariants(state).ok());
}

// Whoever may join can do so under ever new names.
TEST_F(RetentionTest, OfTooManyLostNodesTheOldestAreForgotten) {
  keep.lost_nodes_max = 3;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    join(name, 1);
    now += 1s;
    happen(Heard{"f"});
    if (std::string(name) == "b") happen(Drain{"b"});
  }
  const JobId runs = submit(spec(1));
  const NodeName home = "a";
  ASSERT_EQ(job(runs).places.front().node, home);
  for (int beat = 0; beat < 8; ++beat) {
    happen(Heard{home});
    pass(1s);
  }
  for (const auto& [name, node] : state.nodes) ASSERT_EQ(node.lost, name != home) << name;
  const auto gone = expire().nodes;
  EXPECT_EQ(gone, std::set<NodeName>{"c"}) << "b was drained, and a lives";
  EXPECT_TRUE(expire().nodes.empty());
  EXPECT_TRUE(state.nodes.contains("b"));
}

}  // namespace
}  // namespace tutti::cluster
