// Services in the state machine: replicas that come, are ready, end and come again; new versions; canaries;
// and what is asked for.
#include "control/cluster/services.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct ServicesTest : ClusterTest {
  void SetUp() override {
    ClusterTest::SetUp();
    join("a", 4);
    join("b", 4);
  }

  static Serve serve(const std::string& model = "m1", std::int32_t min = 1, std::int32_t max = 1) {
    Serve event;
    event.name = "chat";
    event.replica = spec(1);
    event.replica.name = "chat";
    event.replica.user = "ada";
    event.replica.command = {"tutti", "engine", model};
    event.replicas_min = min;
    event.replicas_max = max;
    event.key = {.id = {SecretId::Of::service, "chat", std::string(engine_key_name)},
                 .key = "k1",
                 .sealed = std::string(64, 's'),
                 .bytes = 32};
    return event;
  }
  static Serve update(const std::string& model, std::int32_t share = 0) {
    Serve event = serve(model);
    event.replicas_min.reset();
    event.replicas_max.reset();
    event.canary_share = share;
    return event;
  }
  void ask_for(const Event& event) {
    const auto reply = happen(event).reply;
    EXPECT_TRUE(reply.ok()) << (reply ? "" : reply.error().text());
  }
  std::string refusal(const Event& event) {
    const auto reply = happen(event).reply;
    return reply ? "" : reply.error().text();
  }

  const Service& service() const { return state.services.at("chat"); }
  const Fleet& fleet() const { return state.fleets.all.at("chat"); }
  // Of that version, in the order of their ids; 0: of all. Those that are told to end are not among them.
  std::vector<JobId> replicas(std::int32_t version = 0) const {
    std::vector<JobId> found;
    for (const auto& [id, replica] : fleet().replicas) {
      const Job& job = state.jobs.at(id);
      const bool leaves = job.ending == EndCause::cancelled || job.ending == EndCause::killed;
      if (!leaves && (version == 0 || replica.version == version)) found.push_back(id);
    }
    return found;
  }
  std::vector<JobId> leaving() const {
    std::vector<JobId> found;
    for (const auto& [id, replica] : fleet().replicas) {
      if (state.jobs.at(id).ending == EndCause::cancelled) found.push_back(id);
    }
    return found;
  }
  void start(JobId id) { report(id, 0, {RankState::started}); }
  void say(JobId id, const std::string& word) {
    RankStatus status{RankState::started};
    status.detail = word;
    report(id, 0, status);
  }
  void get_ready(JobId id) {
    start(id);
    say(id, "ready 30000");
  }
  void all_get_ready() {
    for (const JobId id : replicas()) {
      if (job(id).placed() && fleet().replicas.at(id).port == 0) get_ready(id);
    }
  }
  void all_leave() {
    for (const JobId id : leaving()) all_exit(id, 143);
  }
  // Until nothing comes or goes any more; every time is looked at.
  void settle(std::size_t times = 100) {
    for (std::size_t at = 0; at < times; ++at) {
      all_get_ready();
      all_leave();
      pass(100ms);
      for (const char* name : {"a", "b"}) happen(Heard{name});
    }
  }
  // Time in which nodes go on to be heard.
  void wait(Duration time) {
    for (Duration passed{}; passed < time; passed += 1s) {
      for (const auto& [name, node] : std::map(state.nodes)) {
        if (!node.lost) happen(Heard{name});
      }
      pass(1s);
    }
  }
  ServiceTold told(std::int32_t version, std::uint64_t requests, std::uint64_t failures = 0,
                   std::int64_t waiting = 0) {
    ServiceTold word{.service = "chat", .version = version, .requests = requests, .failures = failures};
    word.waiting = waiting;
    word.first_tokens.add(100ms, requests);
    return word;
  }
  void tell(std::vector<ServiceTold> services, const std::string& gateway = "g1") {
    ask_for(GatewayTold{gateway, "http://g:8080", std::move(services)});
  }
  // A gateway is there all the time, and says so.
  void nobody_asks_for(Duration time) {
    for (Duration passed{}; passed < time; passed += 5s) {
      tell({});
      wait(5s);
    }
  }
};

TEST_F(ServicesTest, AReplicaIsReadyWhenItSaysSoItself) {
  ask_for(serve());
  ASSERT_EQ(replicas().size(), 1U);
  const JobId id = replicas().front();
  EXPECT_EQ(job(id).spec.service, (ServicePart{"chat", 1}));
  EXPECT_EQ(state_of(state, service()), "starting");
  start(id);
  EXPECT_EQ(ready_of(fleet()), 0);
  for (const char* wrong :
       {"ready", "ready 80", "ready 70000", "ready x", "ready 30000 x", "step 1", "ready -1"}) {
    say(id, wrong);
    EXPECT_EQ(ready_of(fleet()), 0) << wrong;
  }
  const std::string before = routes_revision(state);
  say(id, "ready 30000");
  EXPECT_EQ(fleet().replicas.at(id).port, 30'000);
  EXPECT_EQ(state_of(state, service()), "ready");
  EXPECT_NE(routes_revision(state), before);
  say(id, "");
  EXPECT_EQ(ready_of(fleet()), 1) << "an agent that has come back has not looked yet";
  // Who is no replica says nothing by it.
  const JobId other = submit(spec(1));
  start(other);
  say(other, "ready 30000");
  EXPECT_FALSE(ready_port(job(other)));
}

TEST_F(ServicesTest, WhatTheStateDerivesIsTheSameAfterItWasLoaded) {
  ask_for(serve("m1", 3, 3));
  all_get_ready();
  EXPECT_EQ(ready_of(fleet()), 3);
  const auto before = fleet().replicas;
  derive(state, now);
  EXPECT_EQ(ready_of(fleet()), 3);
  ASSERT_EQ(fleet().replicas.size(), before.size());
  EXPECT_TRUE(invariants(state).ok());
  EXPECT_EQ(state.fleets.due, std::set<ServiceName>{"chat"}) << "nobody knows what was left to be done";
}

TEST_F(ServicesTest, EachReplicaGetsTheKeyOfItsService) {
  ask_for(serve());
  const auto secrets = secrets_of(state, job(replicas().front()).spec);
  ASSERT_TRUE(secrets.ok());
  ASSERT_EQ(secrets->size(), 1U);
  EXPECT_EQ(secrets->front()->id.name, "engine.key");
  EXPECT_TRUE(secrets_of(state, spec(1))->empty());
  ask_for(StopService{"chat"});
  EXPECT_TRUE(state.secrets.empty());
  Serve without = serve();
  without.key = {};
  EXPECT_NE(refusal(without), "");
}

TEST_F(ServicesTest, AReplicaThatEndsByItselfIsStartedAgainLaterEachTime) {
  ask_for(serve());
  std::vector<Duration> pauses;
  for (int times = 0; times < 4; ++times) {
    const JobId id = replicas().front();
    start(id);
    const Instant ended = now;
    all_exit(id, 1);
    EXPECT_TRUE(replicas().empty());
    while (replicas().empty()) wait(1s);
    pauses.push_back(now - ended);
  }
  EXPECT_EQ(pauses, (std::vector<Duration>{1s, 2s, 4s, 8s}));
  EXPECT_TRUE(
      has(reason_of(state, service()), "4 of the replicas of version 1 in a row ended by themselves"));
  get_ready(replicas().front());
  wait(replica_stable);
  EXPECT_EQ(service().serving.bad_ends, 0) << "it works now";
  all_exit(replicas().front(), 1);
  EXPECT_EQ(replicas().size(), 1U) << "at once";
}

TEST_F(ServicesTest, ThatAnotherOneIsWellDoesNotHelpOneThatEndsAgainAndAgain) {
  ask_for(serve("m1", 2, 2));
  all_get_ready();
  wait(replica_stable + 1s);
  all_exit(replicas().back(), 1);
  EXPECT_EQ(replicas().size(), 2U);
  const auto newest = [&] { return replicas().back(); };
  std::vector<Duration> pauses;
  for (int times = 0; times < 3; ++times) {
    start(newest());
    const Instant ended = now;
    all_exit(newest(), 1);
    while (replicas().size() < 2) wait(1s);
    pauses.push_back(now - ended);
  }
  EXPECT_EQ(pauses, (std::vector<Duration>{1s, 2s, 4s}));
}

TEST_F(ServicesTest, WhoIsCancelledOrLosesItsNodeIsReplacedAndBlamedForNothing) {
  ask_for(serve("m1", 2, 2));
  all_get_ready();
  const JobId first = replicas().front();
  ask_for(Cancel{first, "ada"});
  EXPECT_EQ(ready_of(fleet()), 1) << "one that ends is asked no more";
  EXPECT_EQ(replicas().size(), 2U) << "another one comes while it ends";
  all_exit(first, 143);
  all_get_ready();
  EXPECT_EQ(ready_of(fleet()), 2);
  const JobId second = replicas().front();
  const NodeName node = job(second).places.front().node;
  lose(node);
  EXPECT_LT(ready_of(fleet()), 2);
  EXPECT_EQ(replicas().size(), 2U) << "it starts again elsewhere";
  EXPECT_EQ(service().serving.bad_ends, 0);
}

TEST_F(ServicesTest, AStoppedServiceEndsItsReplicasAndIsGone) {
  ask_for(serve("m1", 2, 2));
  get_ready(replicas().front());
  const auto ids = replicas();
  ask_for(StopService{"chat", "ada"});
  EXPECT_TRUE(state.services.empty());
  for (const JobId id : ids) EXPECT_EQ(job(id).ending, EndCause::cancelled);
  EXPECT_TRUE(has(job(ids.front()).reason, "the service chat was stopped by ada"));
  // One of the same name is another one.
  ask_for(serve("m1", 1, 1));
  EXPECT_EQ(replicas().size(), 1U);
  EXPECT_GT(replicas().front(), ids.back());
  for (const JobId id : ids) all_exit(id, 143);
  EXPECT_EQ(job(ids.front()).state, JobState::cancelled);
  EXPECT_EQ(refusal(StopService{"other"}), "there is no service 'other'");
}

TEST_F(ServicesTest, WhatIsNoServiceIsRefused) {
  const auto refused = [&](auto change) {
    Serve event = serve();
    change(event);
    return refusal(event);
  };
  EXPECT_TRUE(has(refused([](Serve& event) { event.name = "a/b"; }), "no name of a service"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.replica.shape.ranks = 2; }), "has one rank"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.replica.time_limit = 1h; }), "no time limit"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.replica.queue = "none"; }), "there is no queue"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.replica.shape.gpu_share = 64'000; }), "can never run"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.replicas_max = 0; }), "replicas"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.replicas_max = 1'001; }), "replicas"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.canary_share = 100; }), "serves nothing yet"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.idle_time = 0s; }), "time without a request"));
  EXPECT_TRUE(has(refused([](Serve& event) { event.replica.secrets = {"engine.key"}; }), "engine.key"));
  EXPECT_TRUE(state.services.empty());
  JobSpec replica = spec(1);
  replica.service = ServicePart{"chat", 1};
  EXPECT_TRUE(has(refusal(Submit{{replica}}), "the cluster says"));
}

TEST_F(ServicesTest, ItsQueueAndItsUserStayAsLongAsItDoes) {
  ask_for(SetQueue{.name = "q"});
  ask_for(SetPerson{.name = "ada", .grants = std::vector<people::Grant>{{people::Role::user, "q"}}});
  Serve event = serve("m1", 0, 1);
  event.replica.queue = "q";
  ask_for(event);
  ask_for(ScaleService{"chat", 0, 1});
  tell({});
  settle();
  nobody_asks_for(11min);
  all_leave();
  ASSERT_TRUE(fleet().replicas.empty()) << "nobody asks";
  EXPECT_TRUE(has(refusal(RemoveQueue{"q"}), "the service chat is in the queue"));
  EXPECT_TRUE(has(refusal(RemovePerson{"ada"}), "the service chat is of 'ada'"));
  ask_for(StopService{"chat"});
  ask_for(RemovePerson{"ada"});
  ask_for(RemoveQueue{"q"});
}

TEST_F(ServicesTest, ANewVersionTakesThePlaceOfTheOldOneByOneWithoutFewerThatAnswer) {
  ask_for(serve("m1", 3, 3));
  all_get_ready();
  ask_for(update("m2"));
  EXPECT_EQ(service().next->number, 2);
  for (int step = 0; step < 20 && service().next; ++step) {
    EXPECT_GE(ready_of(fleet()), 3);
    EXPECT_LE(replicas().size(), 4U) << "one more than are wanted";
    EXPECT_LE(replicas(2).size() - static_cast<std::size_t>(ready_of(fleet(), 2)), 1U);
    all_leave();
    all_get_ready();
    pass(100ms);
  }
  EXPECT_FALSE(service().next);
  EXPECT_EQ(service().serving.number, 2);
  EXPECT_EQ(service().serving.replica.command[2], "m2");
  EXPECT_EQ(replicas(2).size(), 3U);
  EXPECT_TRUE(replicas(1).empty());
  EXPECT_EQ(service().last_change, "version 2 has taken the place of version 1");
}

TEST_F(ServicesTest, WithoutRoomForOneMoreAnOldReplicaMakesWay) {
  ask_for(serve("m1", 8, 8));
  all_get_ready();
  ask_for(update("m2"));
  wait(update_room_time - 1s);
  EXPECT_TRUE(leaving().empty());
  EXPECT_EQ(ready_of(fleet()), 8);
  wait(2s);
  EXPECT_EQ(leaving().size(), 1U);
  EXPECT_TRUE(has(service().last_change, "made way, and fewer answer than are to")) << service().last_change;
  for (int step = 0; step < 400 && service().next; ++step) {
    EXPECT_GE(ready_of(fleet()), 7);
    all_leave();
    all_get_ready();
    wait(1s);
  }
  EXPECT_EQ(service().serving.number, 2);
}

TEST_F(ServicesTest, ANewVersionThatDoesNotStartIsRolledBack) {
  ask_for(serve("m1", 2, 2));
  all_get_ready();
  ask_for(update("broken"));
  for (int times = 0; times < 3; ++times) {
    while (replicas(2).empty()) wait(1s);
    const JobId id = replicas(2).front();
    start(id);
    report(id, 0, {RankState::exited, 1, "no such model"});
  }
  EXPECT_FALSE(service().next);
  EXPECT_EQ(service().serving.number, 1);
  EXPECT_EQ(ready_of(fleet()), 2) << "those that were there never went";
  EXPECT_TRUE(has(service().last_change, "version 2 was rolled back: 3 of its replicas"))
      << service().last_change;
  EXPECT_TRUE(has(service().last_change, "no such model"));
  ask_for(update("m2"));
  EXPECT_EQ(service().next->number, 3) << "a number is never given out twice";
}

TEST_F(ServicesTest, AskedAgainItIsDoneOnceAndNothingElseIsDoneMeanwhile) {
  ask_for(serve());
  ask_for(serve());
  EXPECT_EQ(service().versions, 1);
  ask_for(update("m2"));
  ask_for(update("m2"));
  EXPECT_EQ(service().versions, 2);
  EXPECT_TRUE(has(refusal(update("m3")), "version 2 is under way already"));
  EXPECT_TRUE(has(refusal(update("m2", 100)), "under way already, as an update"));
  Serve other = update("m2");
  other.replica.user = "bob";
  EXPECT_TRUE(has(refusal(other), "it is of 'ada'"));
  ask_for(RollBack{"chat", "ada"});
  EXPECT_FALSE(service().next);
  EXPECT_EQ(service().last_change, "version 2 was rolled back by ada");
  EXPECT_TRUE(has(refusal(RollBack{"chat"}), "nothing is under way"));
  EXPECT_TRUE(has(refusal(Promote{"chat"}), "has no canary"));
  EXPECT_TRUE(has(refusal(update("m1", 100)), "a canary is another version"));
}

TEST_F(ServicesTest, OnlyTheCommandMayBeAnother) {
  Serve event = serve();
  event.replica.env = {"A=1"};
  ask_for(event);
  Serve other;
  other.name = "chat";
  other.only_command = true;
  other.replica.command = {"tutti", "engine", "m2"};
  ask_for(other);
  JobSpec expected = event.replica;
  expected.command = other.replica.command;
  EXPECT_EQ(service().next->replica, expected);
  other.replica.user = "bob";
  EXPECT_TRUE(has(refusal(other), "it is of 'ada'"));
  other.name = "none";
  EXPECT_EQ(refusal(other), "there is no service 'none'");
}

struct CanaryTest : ServicesTest {
  void SetUp() override {
    ServicesTest::SetUp();
    ask_for(serve("m1", 4, 4));
    all_get_ready();
    tell({told(1, 1'000)});
    ask_for(update("m2", 100));
    all_get_ready();
  }
};

TEST_F(CanaryTest, GetsItsShareOfTheReplicasAndNoMore) {
  EXPECT_EQ(replicas(2).size(), 1U);
  EXPECT_EQ(replicas(1).size(), 4U) << "what serves stays whole";
  EXPECT_EQ(state_of(state, service()), "canary");
  EXPECT_EQ(canary_replicas(4, 100), 1);
  EXPECT_EQ(canary_replicas(40, 100), 4);
  EXPECT_EQ(canary_replicas(41, 100), 5);
  EXPECT_EQ(service().last_change, "version 2 is a canary for 10% of the requests");
}

TEST_F(CanaryTest, AGoodOneIsPromotedAndTakesThePlace) {
  tell({told(1, 1'100), told(2, 50)});
  EXPECT_EQ(service().canary_share, 100);
  EXPECT_TRUE(has(reason_of(state, service()), "50 of the 100 requests")) << reason_of(state, service());
  tell({told(1, 1'100), told(2, 50)});
  tell({told(1, 1'100), told(2, 50)});
  EXPECT_EQ(service().canary_share, 100) << "a word that comes twice counts once";
  tell({told(1, 1'900), told(2, 100)});
  EXPECT_EQ(service().canary_share, 0);
  EXPECT_TRUE(has(service().last_change, "version 2 is promoted: 0 of 100 requests failed"))
      << service().last_change;
  for (int step = 0; step < 40 && service().next; ++step) {
    EXPECT_GE(ready_of(fleet()), 4);
    all_leave();
    all_get_ready();
    pass(100ms);
  }
  EXPECT_EQ(service().serving.number, 2);
}

TEST_F(CanaryTest, ABadOneIsRolledBackAndItsReplicasEnd) {
  tell({told(1, 1'100), told(2, 30, 3)});
  EXPECT_FALSE(service().next);
  EXPECT_TRUE(has(service().last_change, "version 2 was rolled back: 3 of 30 requests failed (10%)"))
      << service().last_change;
  EXPECT_TRUE(replicas(2).empty());
  EXPECT_EQ(leaving().size(), 1U);
  EXPECT_EQ(ready_of(fleet()), 4);
  // What is still said of it comes too late.
  tell({told(2, 500)});
  EXPECT_FALSE(service().next);
}

TEST_F(CanaryTest, WhatTheOldOneDidBeforeIsNotHeldAgainstIt) {
  // A gateway that was not known: since when it counts nobody knows.
  tell({told(1, 9'000, 9'000), told(2, 500, 500)}, "g2");
  EXPECT_TRUE(service().next);
  tell({told(1, 9'100, 9'000), told(2, 600, 500)}, "g2");
  EXPECT_EQ(service().canary_share, 0) << service().last_change;
}

TEST_F(CanaryTest, APersonMayDecideSooner) {
  ask_for(Promote{"chat", "ada"});
  EXPECT_EQ(service().canary_share, 0);
  EXPECT_EQ(service().last_change, "version 2 is promoted by ada");
}

TEST_F(ServicesTest, ARequestThatWaitsWakesAServiceAtZero) {
  ask_for(serve("m1", 0, 4));
  tell({});
  settle();
  nobody_asks_for(11min);
  all_leave();
  EXPECT_EQ(service().wanted, 0);
  EXPECT_EQ(state_of(state, service()), "asleep");
  EXPECT_TRUE(has(service().last_change, "from 1 to 0 replicas: nobody has asked for 10m"))
      << service().last_change;
  EXPECT_TRUE(fleet().replicas.empty());
  tell({told(1, 0, 0, 1)});
  EXPECT_EQ(service().wanted, 1);
  ASSERT_EQ(replicas().size(), 1U);
  EXPECT_TRUE(job(replicas().front()).placed()) << "in the same turn";
}

TEST_F(ServicesTest, WhatAGatewayThatIsGoneHasSaidIsForgotten) {
  ask_for(serve("m1", 1, 4));
  all_get_ready();
  tell({told(1, 10, 0, 5)});
  EXPECT_EQ(demand_of(state, fleet()).waiting, 5);
  tell({});
  EXPECT_EQ(demand_of(state, fleet()).waiting, 0) << "what is not named does not wait there";
  tell({told(1, 20, 0, 5)});
  wait(gateway_time_max + 1s);
  EXPECT_FALSE(demand_of(state, fleet()).known);
  EXPECT_TRUE(fleet().told.empty());
  EXPECT_TRUE(state.fleets.gateways.empty());
  EXPECT_NE(refusal(GatewayTold{"g 1", "", {}}), "");
  tell({{.service = "nobody's", .version = 1}, {.service = "chat", .version = 7}});
  EXPECT_TRUE(fleet().told.empty());
}

TEST_F(ServicesTest, AServiceThatCannotStartAReplicaSaysWhyAndTriesAgain) {
  ask_for(SetQueue{.name = "q"});
  Serve event = serve("m1", 1, 1);
  event.replica.queue = "q";
  ask_for(event);
  ask_for(SetQueue{.name = "q", .limit = 0});
  ask_for(Cancel{replicas().front(), "", false, true});
  settle(1);
  for (const auto& [id, replica] : std::map(fleet().replicas)) all_exit(id, 137);
  EXPECT_TRUE(replicas().empty());
  EXPECT_TRUE(has(reason_of(state, service()), "no replica can be started: ")) << reason_of(state, service());
  ask_for(SetQueue{.name = "q", .limit = 4'000});
  wait(replica_tried_every + 1s);
  EXPECT_EQ(replicas().size(), 1U);
  EXPECT_EQ(fleet().trouble, "");
}

// A turn costs what has happened, and not what there is.
TEST_F(ServicesTest, NobodyIsTendedWithoutAReason) {
  ask_for(serve("m1", 2, 2));
  all_get_ready();
  wait(replica_stable + 5s);
  EXPECT_TRUE(state.fleets.due.empty());
  EXPECT_TRUE(state.fleets.alarms.empty()) << "nothing is to come";
  const Effects effects = happen(Tick{});
  EXPECT_FALSE(is_stored(effects));
}

TEST_F(ServicesTest, AClockThatIsSetPutsNothingOff) {
  ask_for(serve());
  const JobId id = replicas().front();
  start(id);
  ask_for(ClockSet{{"boot", 0s}});
  all_exit(id, 1);
  EXPECT_TRUE(replicas().empty());
  now -= 1h;
  ask_for(ClockSet{{"boot", -1h}});
  for (const char* name : {"a", "b"}) happen(Heard{name});
  wait(2s);
  EXPECT_EQ(replicas().size(), 1U);
}

// Decisions for a thousand services at once: the time is printed, and bounded with room for a slow machine.
TEST_F(ServicesTest, ManyServicesAreTendedInTurns) {
  for (int node = 0; node < 16; ++node) join("n" + std::to_string(node), 8);
  constexpr int services = 100;
  for (int number = 0; number < services; ++number) {
    Serve event = serve("m1", 1, 2);
    event.name = "s" + std::to_string(number);
    event.key.id.owner = event.name;
    Effects effects = step(state, now, event);
    ASSERT_TRUE(effects.reply.ok());
  }
  EXPECT_EQ(state.fleets.due.size(), static_cast<std::size_t>(services));
  happen(Tick{});
  EXPECT_EQ(state.active.size(), static_cast<std::size_t>(services));
}

}  // namespace
}  // namespace tutti::cluster
