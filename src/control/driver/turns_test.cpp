#include "control/driver/turns.hpp"

#include <set>

#include <gtest/gtest.h>

#include "control/store/memory/memory_store.hpp"
#include "control/wire/objects.hpp"

namespace tutti::driver {
namespace {

cluster::Hello hello(const std::string& name) {
  cluster::Hello hello{name, "", "127.0.0.1", 1, {}, {}};
  hello.inventory.devices = {{"H100", gib(80), "u"}};
  hello.inventory.cpus = 2;
  return hello;
}

cluster::Submit submit() {
  cluster::JobSpec spec;
  spec.name = "job";
  spec.command = {"true"};
  spec.shape.gpu_share = 1000;
  return {{spec}};
}

struct TurnsTest : testing::Test {
  store::MemoryStore store;
  Instant now{1000s};  // on the steady clock
  Duration offset{};   // of the date
  Turns::Clock clock = [this] { return Now(now + offset, now); };
  Turns turns{store, clock, "", {}, "boot"};

  void SetUp() override { ASSERT_TRUE(turns.load().ok()); }

  Turns::Outcome happen(cluster::Event event) {
    std::vector<Item> items;
    items.push_back({std::move(event), nullptr, nullptr});
    return turns.turn(std::move(items), false);
  }
  void pass(Duration time) {
    now += time;
    turns.turn({}, false);
  }
  bool lost(const std::string& node) const { return turns.state().nodes.at(node).lost; }
};

TEST_F(TurnsTest, ANodeThatIsSilentIsLost) {
  happen(hello("a"));
  for (int turn = 0; turn < 20; ++turn) pass(200ms);
  EXPECT_TRUE(lost("a"));
}

TEST_F(TurnsTest, ALoopThatStoodStillBlamesNobody) {
  happen(hello("a"));
  pass(60s);
  EXPECT_FALSE(lost("a"));
  for (const Duration by : {Duration(-30s), Duration(60s)}) {
    offset += by;
    pass(0s);
    EXPECT_FALSE(lost("a")) << "nor does a clock that was set";
  }
  for (int turn = 0; turn < 20; ++turn) pass(200ms);
  EXPECT_TRUE(lost("a")) << "but silence counts from then on";
}

// A store of a million jobs takes seconds to read, and longer to make something of.
TEST_F(TurnsTest, HoweverLongAStoreTakesToLoadNodesHaveAWholeLeaseAfterIt) {
  happen(hello("a"));
  Duration each_look = 2s;
  Turns again(store, [&] { return now += each_look; });
  ASSERT_TRUE(again.load().ok());
  each_look = {};
  const auto pass_again = [&](int turns_of_it) {
    for (int turn = 0; turn < turns_of_it; ++turn) {
      now += 200ms;
      again.turn({}, false);
    }
  };
  pass_again(14);
  EXPECT_FALSE(again.state().nodes.at("a").lost) << "nobody could be heard before the first turn";
  pass_again(10);
  EXPECT_TRUE(again.state().nodes.at("a").lost) << "but silence counts from then on";
}

TEST_F(TurnsTest, ALeaseBeginsWhenTheListenerDoes) {
  happen(hello("a"));
  for (int turn = 0; turn < 10; ++turn) pass(200ms);
  for (int turn = 0; turn < 10; ++turn) {
    std::vector<Item> items;
    items.push_back({cluster::Tick{}, nullptr, nullptr, now});
    turns.turn(std::move(items), false);
    pass(200ms);
  }
  EXPECT_FALSE(lost("a")) << "four seconds of silence, of which it could be heard in two";
}

TEST_F(TurnsTest, SilenceCountsOnlyWhileTheListenerIsAwake) {
  const auto hear = [this] {
    std::vector<Item> items;
    items.push_back({cluster::Tick{}, nullptr, nullptr, now});
    turns.turn(std::move(items), false);
  };
  happen(hello("a"));
  hear();
  for (int turn = 0; turn < 50; ++turn) pass(200ms);
  EXPECT_FALSE(lost("a")) << "the loop that hears stood still";
  hear();
  for (int turn = 0; turn < 10; ++turn) {
    pass(200ms);
    hear();
  }
  EXPECT_FALSE(lost("a")) << "it has a whole lease from then on";
  for (int turn = 0; turn < 20; ++turn) {
    pass(200ms);
    hear();
  }
  EXPECT_TRUE(lost("a"));
}

// What a node has said may wait behind a hundred thousand reports of others.
TEST_F(TurnsTest, ABacklogIsNotSilence) {
  happen(hello("a"));
  const auto hear_late = [this](Duration late) {
    std::vector<Item> items;
    items.push_back({cluster::Tick{}, nullptr, nullptr, now - late});
    turns.turn(std::move(items), false);
  };
  for (int turn = 0; turn < 50; ++turn) {
    pass(200ms);
    hear_late(turn * 100ms);
  }
  EXPECT_FALSE(lost("a")) << "this loop is five seconds behind what was heard";
  for (int turn = 0; turn < 10; ++turn) {
    pass(200ms);
    hear_late(0ms);
  }
  EXPECT_FALSE(lost("a")) << "it has a whole lease from then on";
  for (int turn = 0; turn < 20; ++turn) {
    pass(200ms);
    hear_late(0ms);
  }
  EXPECT_TRUE(lost("a"));
}

TEST_F(TurnsTest, NothingIsSentOfATurnThatWasNotStored) {
  happen(hello("a"));
  store.fail_next(store::CommitResult::Status::unknown, false);
  const auto outcome = happen(submit());
  EXPECT_TRUE(outcome.delivery.messages.empty());
  EXPECT_TRUE(outcome.delivery.resync);
  EXPECT_FALSE(turns.health().ok);
  EXPECT_TRUE(turns.state().jobs.empty());
}

// The answer to a submit whose commit had an unknown end.
std::string answer_after(TurnsTest& test, bool landed) {
  test.happen(hello("a"));
  test.store.fail_next(store::CommitResult::Status::unknown, landed);
  std::vector<Item> items;
  items.push_back({submit(), [](const auto&) {}, nullptr});
  const auto outcome = test.turns.turn(std::move(items), false);
  const auto& result = outcome.answers.at(0).result;
  return result ? "accepted as job " + result->front().text() : result.error().remedy();
}

TEST_F(TurnsTest, AfterACommitOfUnknownEndTheAnswerIsTrueIfItLanded) {
  EXPECT_EQ(answer_after(*this, true), "accepted as job 1");
  EXPECT_EQ(turns.state().jobs.size(), 1U);
}

TEST_F(TurnsTest, AfterACommitOfUnknownEndTheAnswerIsTrueIfItDidNotLand) {
  EXPECT_EQ(answer_after(*this, false), "nothing was changed; try again when the disk is well");
  EXPECT_TRUE(turns.state().jobs.empty());
}

// A store that cannot be read after a commit of unknown end.
struct SilentStore final : store::Store {
  store::MemoryStore memory;
  bool silent = false;
  Result<std::uint64_t> read(const Each& each) override {
    if (silent) return failed("the disk is gone");
    return memory.read(each);
  }
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override {
    auto result = memory.commit(revision, writes);
    silent = silent || result.status == store::CommitResult::Status::unknown;
    return result;
  }
};

TEST(Turns, WhatNobodyCanKnowIsNotClaimed) {
  SilentStore store;
  Instant now{1000s};
  Turns turns(store, [&] { return now; });
  ASSERT_TRUE(turns.load().ok());
  store.memory.fail_next(store::CommitResult::Status::unknown, true);
  cluster::Submit keyed = submit();
  keyed.key = "key";
  const auto ask = [&] {
    std::vector<Item> items;
    items.push_back({keyed, [](const auto&) {}, nullptr});
    return turns.turn(std::move(items), false).answers.at(0).result;
  };
  const auto first = ask();
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code(), ErrorCode::unknown);
  store.silent = false;
  now += 2s;
  const auto again = ask();
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(again->front().number(), 1U) << "it had landed, and the key finds it";
  EXPECT_EQ(turns.state().jobs.size(), 1U);
}

TEST_F(TurnsTest, AStoreThatIsWellAgainIsFoundByAProbe) {
  happen(hello("a"));
  store.fail_next(store::CommitResult::Status::unknown, true);
  happen(submit());
  now += 500ms;
  EXPECT_FALSE(turns.turn({}, false).delivery.resync) << "not before a second has passed";
  EXPECT_FALSE(turns.health().ok);
  now += 600ms;
  const auto outcome = turns.turn({}, false);
  EXPECT_TRUE(turns.health().ok);
  EXPECT_TRUE(outcome.delivery.resync);
  EXPECT_EQ(turns.state().jobs.size(), 1U) << "the commit had landed";
}

TEST_F(TurnsTest, AClockThatIsWrongForAMomentCostsNothingThatIsKept) {
  happen(hello("a"));
  happen(submit());
  happen(cluster::Cancel{cluster::JobId(1), "", false});
  happen(cluster::Reported{"a", {cluster::JobId(1), 0, 0, {cluster::RankState::exited, 143, ""}}});
  happen(submit());
  ASSERT_TRUE(turns.state().jobs.at(cluster::JobId(1)).finished());
  offset += 40 * 24h;
  for (int turn = 0; turn < 15; ++turn) pass(200ms);
  EXPECT_TRUE(turns.state().jobs.contains(cluster::JobId(1)));
  EXPECT_TRUE(turns.state().nodes.contains("a"));
  for (int turn = 0; turn < 9000; ++turn) pass(500ms);
  EXPECT_FALSE(turns.state().jobs.contains(cluster::JobId(1))) << "it was right";
}

// The disk of the store may hang in a commit for long, and nodes are heard meanwhile.
TEST_F(TurnsTest, WhatWaitedForItsTurnIsOlderThanItSays) {
  const cluster::JobId id(1);
  happen(hello("a"));
  happen(submit());
  cluster::RankReport report{id, 0, 0, {cluster::RankState::started}, {}, 1s};
  report.heard_at = now;
  now += 5min;
  happen(cluster::Reported{"a", report});
  EXPECT_EQ(turns.state().jobs.at(id).witness_since, now - 5min - 1s);
  report = {id, 0, 0, {cluster::RankState::exited, 0, ""}, 2s};
  report.heard_at = now;
  now += 5min;
  happen(cluster::Reported{"a", report});
  const cluster::Job& job = turns.state().jobs.at(id);
  ASSERT_TRUE(job.finished());
  EXPECT_EQ(job.finished_at, now - 5min - 2s);
}

// ---- the date is set

struct ClockOfTurns : TurnsTest {
  const cluster::JobId id{1};
  const cluster::Job& job(const Turns& of) const { return of.state().jobs.at(id); }

  // One job of ten minutes that runs.
  void run_limited() {
    happen(hello("a"));
    cluster::Submit limited = submit();
    limited.specs.front().time_limit = 10min;
    happen(limited);
    happen(cluster::Reported{"a", {id, 0, 0, {cluster::RankState::started}}});
    ASSERT_TRUE(job(turns).placed());
  }
  // The node is heard, and says that the rank runs.
  void live(Turns& in, Duration time) {
    cluster::Hello said = hello("a");
    said.ranks.push_back({id, 0, 0, {cluster::RankState::started}});
    for (const Instant until = now + time; now < until; now += 500ms) {
      std::vector<Item> items;
      items.push_back({said, nullptr, nullptr});
      in.turn(std::move(items), false);
    }
  }
  void expect_limit_after(Turns& in, Duration time) {
    live(in, time - 10s);
    EXPECT_EQ(job(in).ending, cluster::EndCause::none) << job(in).reason;
    live(in, 20s);
    EXPECT_EQ(job(in).ending, cluster::EndCause::time_limit);
  }
  void set_while_the_store_is_ill(bool landed) {
    run_limited();
    live(turns, 2min);
    offset += 24h;
    store.fail_next(store::CommitResult::Status::unknown, landed);
    turns.turn({}, false);
    ASSERT_FALSE(turns.health().ok);
    live(turns, 1min);
    ASSERT_TRUE(turns.health().ok);
    expect_limit_after(turns, 7min);
  }
};

TEST_F(ClockOfTurns, AJobEndsWhenItsTimeIsOverForwardOrBack) {
  run_limited();
  live(turns, 2min);
  offset += 24h;
  live(turns, 1min);
  offset -= 48h;
  live(turns, 1min);
  expect_limit_after(turns, 6min);
}

TEST_F(ClockOfTurns, WhoGoesOnWithTheStoreKnowsHowItWasSetMeanwhile) {
  run_limited();
  live(turns, 2min);
  offset += 24h;
  now += 1min;
  Turns again(store, clock, "", {}, "boot");
  ASSERT_TRUE(again.load().ok());
  expect_limit_after(again, 7min);
}

TEST_F(ClockOfTurns, WhatCouldNotBeStoredOfItIsMadeUpFor) { set_while_the_store_is_ill(false); }

TEST_F(ClockOfTurns, WhatWasStoredOfItWithoutAWordIsNotDoneTwice) { set_while_the_store_is_ill(true); }

TEST_F(ClockOfTurns, AnotherOneIsNotFollowedForLessThanASecond) {
  run_limited();
  const Instant started_at = job(turns).started_at;
  offset += 900ms;
  live(turns, 1s);
  EXPECT_EQ(job(turns).started_at, started_at);
  offset += 200ms;
  live(turns, 1s);
  EXPECT_EQ(job(turns).started_at, started_at + 1100ms);
}

TEST_F(ClockOfTurns, NodesAreAskedWhenItWasSet) {
  run_limited();
  offset += 1h;
  EXPECT_TRUE(turns.turn({}, false).delivery.resync) << "the machine of this controller may have slept";
  EXPECT_FALSE(turns.turn({}, false).delivery.resync);
}

TEST(Turns, WhatDepartedUsersHadGoesFromTheStoreWhenItWeighsNothing) {
  store::MemoryStore store;
  const cluster::QueueUser gone{"default", "ann"};
  const cluster::QueueUser heavy{"default", "bob"};
  ASSERT_EQ(store
                .commit(0,
                        std::vector<store::Write>{
                            {wire::past_use_key(gone), wire::encode(gone, {1000, Instant(1000s)})},
                            {wire::past_use_key(heavy), wire::encode(heavy, {1e9, Instant(1000s)})}})
                .status,
            store::CommitResult::Status::done);
  Instant now(1000s + 12 * cluster::usage_half_life);
  Turns turns(store, [&now] { return now; });
  ASSERT_TRUE(turns.load().ok());
  turns.turn({}, false);
  EXPECT_EQ(turns.state().past_use.size(), 2U) << "a clock that is wrong for a moment costs nothing";
  for (int turn = 0; turn < 9000; ++turn) {
    now += 500ms;
    turns.turn({}, false);
  }
  std::set<std::string> left;
  ASSERT_TRUE(store
                  .read([&](std::string_view key, std::string_view) -> Result<> {
                    left.insert(std::string(key));
                    return {};
                  })
                  .ok());
  EXPECT_FALSE(left.contains(wire::past_use_key(gone)));
  EXPECT_TRUE(left.contains(wire::past_use_key(heavy)));
}

// Whoever follows with it would be cut off, each hour.
TEST_F(TurnsTest, ThatATokenWasUsedIsStoredAndChangesNoDoor) {
  happen(
      cluster::SetPerson{.name = "ada", .kind = {}, .grants = std::vector<people::Grant>(), .blocked = {}});
  const auto made = happen(cluster::IssueToken{{.id = "t1", .person = "ada", .hash = "h"}});
  EXPECT_EQ(made.delivery.doors.tokens.size(), 1U);
  const auto used = happen(cluster::TokensUsed{{"t1"}});
  EXPECT_TRUE(used.delivery.doors.empty());
  Turns again(store, clock);
  ASSERT_TRUE(again.load().ok());
  EXPECT_NE(again.state().people.tokens.at("t1").used_at, Instant());
}

TEST_F(TurnsTest, WhatWasMissedIsAskedForOnce) {
  turns.miss();
  EXPECT_TRUE(turns.turn({}, false).delivery.resync);
  EXPECT_FALSE(turns.turn({}, false).delivery.resync);
}

TEST_F(TurnsTest, ALargeArrayStartsOverSeveralTurns) {
  cluster::Hello many = hello("a");
  many.inventory.cpus = 4000;
  happen(many);
  cluster::JobSpec spec = submit().specs.front();
  spec.shape.gpu_share = 0;
  spec.shape.cpus = 1;
  cluster::Submit array;
  for (std::int32_t index = 0; index < 2500; ++index) {
    spec.array = cluster::ArrayPart{.first = {}, .index = index, .count = 2500};
    array.specs.push_back(spec);
  }
  happen(array);
  EXPECT_LT(turns.state().holding.size(), 2500U);
  for (int turn = 0; turn < 3; ++turn) pass(1ms);
  EXPECT_EQ(turns.state().holding.size(), 2500U) << "without anything else that happens";
}

// A clock that runs while the scheduler works: each look at it takes 10 ms.
TEST(Turns, ALongPassIsNotRepeatedAtOnce) {
  store::MemoryStore store;
  Instant now{1000s};
  Turns turns(store, [&] { return now += 10ms; });
  ASSERT_TRUE(turns.load().ok());
  turns.turn({}, false);
  std::vector<Item> items;
  items.push_back({hello("a"), nullptr, nullptr});
  items.push_back({submit(), nullptr, nullptr});
  now -= 20ms;
  EXPECT_TRUE(turns.turn(std::move(items), false).delivery.messages.empty()) << "the pass is put off";
  const Duration patience = turns.patience();
  EXPECT_LT(patience, tick_every);
  now += patience;
  EXPECT_EQ(turns.turn({}, false).delivery.messages.size(), 1U);
}

// A clock that is looked at when a pass begins and when it has ended.
struct LongPassTest : testing::Test {
  store::MemoryStore store;
  Instant now{1000s};
  Duration each_look{};
  Turns turns{store, [this] { return now += each_look; }};

  void pass_takes(Duration time) {
    ASSERT_TRUE(turns.load().ok());
    each_look = time;
    turns.turn({}, false);
    each_look = {};
  }
  // Messages to the agent, after so much time in which the loop did nothing.
  std::size_t sent_after(Duration time, std::vector<Item> items = {}) {
    now += time;
    return turns.turn(std::move(items), false).delivery.messages.size();
  }
  std::vector<Item> work() {
    std::vector<Item> items;
    items.push_back({hello("a"), nullptr, nullptr});
    items.push_back({submit(), nullptr, nullptr});
    return items;
  }
};

TEST_F(LongPassTest, LeavesTheOthersAsMuchTimeAsItTook) {
  pass_takes(10s);
  EXPECT_EQ(sent_after(0s, work()), 0U);
  EXPECT_EQ(sent_after(2s), 0U) << "although the loop was late, which a long pass is a reason for";
  EXPECT_EQ(sent_after(7s), 0U);
  EXPECT_EQ(sent_after(1s), 1U);
}

TEST_F(LongPassTest, OneThatWasStoppedInBetweenStopsNobody) {
  pass_takes(48h);
  EXPECT_EQ(sent_after(0s, work()), 0U);
  EXPECT_EQ(sent_after(1min), 1U);
}

}  // namespace
}  // namespace tutti::driver
