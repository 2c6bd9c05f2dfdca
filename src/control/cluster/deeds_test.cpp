// What the audit log says of events.
#include "control/cluster/deeds.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

struct DeedsTest : ClusterTest {
  // "VERB OBJECT (WHAT): BEFORE -> AFTER"
  std::string told(const Event& event) {
    const auto deed = deed_of(event);
    if (!deed) return "";
    std::string text = deed->verb + " " + deed->object + (deed->what.empty() ? "" : " (" + deed->what + ")");
    const std::string before = standing_of(state, event);
    EXPECT_TRUE(happen(event).reply.ok()) << text;
    const std::string after = standing_of(state, event);
    return text + ": " + before + " -> " + after;
  }
};

TEST_F(DeedsTest, SayWhatWasAskedForAndHowItStandsBeforeAndAfter) {
  join("a", 4);
  EXPECT_EQ(told(SetQueue{.name = "q", .guarantee = 1'500, .limit = 4'000, .weight = 0.5}),
            "set queue q:  -> guarantee 1.5, limit 4, limit of a user none, weight 0.5, priority " +
                std::to_string(priority_max));
  EXPECT_EQ(told(SetPerson{.name = "ada", .grants = std::vector<people::Grant>{{people::Role::user, "q"}}}),
            "set user ada:  -> person, user:q");
  EXPECT_EQ(told(SetPerson{.name = "ada", .blocked = true}),
            "set user ada: person, user:q -> person, user:q, blocked");
  EXPECT_EQ(
      told(IssueToken{{.id = "t1", .person = "ada", .hash = "secret", .role_max = people::Role::viewer}}),
      "make token t1 (of ada, at most viewer, for ever):  -> of ada, at most viewer, for ever");
  EXPECT_EQ(told(RevokeToken{"t1"}), "revoke token t1: of ada, at most viewer, for ever -> ");
  EXPECT_EQ(told(RemovePerson{"ada"}), "remove user ada: person, user:q, blocked -> ");
  EXPECT_EQ(told(RemoveQueue{"q"}).substr(0, 26), "remove queue q: guarantee ");
  JobSpec one = spec(1);
  one.name = "learn";
  one.user = "ada";
  one.env = {"KEY=a secret"};
  EXPECT_EQ(told(Submit{{one}}), "submit jobs ('learn' of ada in default, 1 rank):  -> ");
  const JobId job = submit(one);
  EXPECT_EQ(told(Cancel{job, "", false, true}).substr(0, 15 + job.text().size()),
            "cancel job " + job.text() + " (no");
  EXPECT_EQ(told(Drain{"a", false}).substr(0, 20), "drain node a: ready ");
  EXPECT_EQ(told(Resume{"a"}).find(" -> ready") != std::string::npos, true);
  EXPECT_EQ(told(FabricMeasured{}), "set fabric (0 links): 0 links -> 0 links");
  EXPECT_EQ(told(MakeJoinToken{{.id = "j1", .hash = "h", .uses_left = 2}, 1h}).substr(0, 45),
            "make join token j1:  -> 2 uses left, for any ");
  EXPECT_EQ(told(RevokeJoinToken{"j1"}).find("2 uses left"), 22U);
  const SecretId secret{SecretId::Of::person, "ada", "T"};
  const SetSecret set{.id = secret, .key = "k1", .sealed = "0123456789", .bytes = 5};
  EXPECT_EQ(told(set), "set secret T of ada (5 bytes):  -> 5 bytes, of " + format_instant(now));
  EXPECT_EQ(told(RemoveSecret{secret}),
            "remove secret T of ada: 5 bytes, of " + format_instant(now) + " -> ");
  EXPECT_EQ(told(UseSecretKey{"k2"}), "rotate key of the secrets (k2): k1 -> k2");
  const SecretId engine_key{SecretId::Of::service, "chat", std::string(engine_key_name)};
  Serve serve;
  serve.name = "chat";
  serve.replica = one;
  serve.key = {.id = engine_key, .key = "k2", .sealed = "0123456789", .bytes = 5};
  EXPECT_EQ(told(serve), "serve service chat (of ada in default):  -> version 1, 1 to 1 replicas");
  serve.replica.command = {"another"};
  serve.canary_share = 100;
  EXPECT_EQ(told(serve),
            "serve service chat (of ada in default, as a canary): version 1, 1 to 1 replicas -> "
            "version 1, 1 to 1 replicas, canary 2");
  EXPECT_EQ(
      told(Promote{"chat"}),
      "promote service chat: version 1, 1 to 1 replicas, canary 2 -> version 1, 1 to 1 replicas, next 2");
  EXPECT_EQ(told(RollBack{"chat"}),
            "roll back service chat: version 1, 1 to 1 replicas, next 2 -> version 1, 1 to 1 replicas");
  EXPECT_EQ(told(ScaleService{"chat", 0, 3}),
            "scale service chat: version 1, 1 to 1 replicas -> version 1, 0 to 3 replicas");
  EXPECT_EQ(told(StopService{"chat"}), "stop service chat: version 1, 0 to 3 replicas -> ");
  EXPECT_EQ(told(Noted{.verb = "rotate", .object = "authority", .what = "x signs"}),
            "rotate authority (x signs):  -> ");
}

// The first of an array may have ended long ago.
TEST_F(DeedsTest, OfAnArraySayHowManyAreInWhichState) {
  join("a", 8);
  submit(spec(8));
  Submit array;
  for (std::int32_t index = 0; index < 3; ++index) {
    array.specs.push_back(spec(8));
    array.specs.back().array = ArrayPart{{}, index, 3, 0};
  }
  const auto elements = happen(array).reply;
  ASSERT_TRUE(elements.ok()) << elements.error().text();
  const JobId first = elements->front();
  ASSERT_TRUE(happen(Cancel{first, ""}).reply.ok());
  const std::string said = "cancel the array of job " + first.text();
  EXPECT_EQ(told(Cancel{first, "", true}), said + ": 1 cancelled, 2 queued -> 3 cancelled");
}

// A name, a hash or an environment may be anything: nothing of what opens something stands in the log.
TEST_F(DeedsTest, NothingThatOpensSomethingIsSaid) {
  const auto all_of = [&](const Event& event) {
    const auto deed = deed_of(event);
    return deed->verb + deed->object + deed->what + deed->who + standing_of(state, event);
  };
  JobSpec one = spec(1);
  one.env = {"KEY=secret"};
  one.command = {"sh", "-c", "echo secret"};
  EXPECT_EQ(all_of(Submit{{one}, "secret"}).find("secret"), std::string::npos);
  EXPECT_EQ(all_of(IssueToken{{.id = "t", .person = "ada", .hash = "secret"}}).find("secret"),
            std::string::npos);
  EXPECT_EQ(all_of(Join{"secret", {.name = "n1"}}).find("secret"), std::string::npos);
}

TEST_F(DeedsTest, WhatNobodyHasAskedForIsNoDeed) {
  for (const Event& event :
       std::vector<Event>{Hello{}, Heard{}, Reported{}, Planned{}, Expire{}, Tick{}, PortsHeld{}, EndDoomed{},
                          ClockSet{}, TokensUsed{}, AuditShelved{}, AuditFound{}, GatewayTold{}, Tend{}})
    EXPECT_FALSE(deed_of(event)) << event.index();
}

TEST(AuditLogTest, WhatIsInFilesLeavesTheStoreButForTheNewest) {
  State state;
  const std::string hash(64, 'a');
  for (const std::uint64_t first : {1U, 4U, 5U}) {
    add_audit_lines(state.audit, first, "lines");
    state.audit.head = {first, hash};
  }
  EXPECT_TRUE(step(state, Instant(1s), AuditShelved{2}).audit.empty()) << "a part of them is not there";
  const Effects effects = step(state, Instant(1s), AuditShelved{5});
  EXPECT_EQ(effects.audit, (std::set<std::uint64_t>{1, 4}));
  EXPECT_EQ(state.audit.lines.size(), 1U);
  EXPECT_EQ(state.audit.bytes, 5U);
  EXPECT_TRUE(step(state, Instant(1s), AuditFound{{5, hash}}).audit.empty()) << "as far as that";
  EXPECT_EQ(step(state, Instant(1s), AuditFound{{9, hash}}).audit, (std::set<std::uint64_t>{5}));
  EXPECT_EQ(state.audit.head.last, 9U);
}

}  // namespace
}  // namespace tutti::cluster
