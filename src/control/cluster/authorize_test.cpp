// Who may ask for what: each request by each role against a table, and what a role in one queue does not
// reach in others.
#include "control/cluster/authorize.hpp"

#include <map>

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

using people::Caller;
using people::Grant;
using people::Role;

Caller with(Role role, const std::string& queue, const people::Name& name = "ada") {
  return {.name = name, .grants = {{role, queue}}};
}

// Queues research, research/vision and production; a job of bob in research.
struct AuthorizeTest : ClusterTest {
  void SetUp() override {
    ClusterTest::SetUp();
    join("a", 4);
    for (const char* queue : {"research", "research/vision", "production"}) happen(SetQueue{.name = queue});
    bobs = submit_to("research", "bob");
    person("bob", {{Role::user, "research"}});
    person("root2", {{Role::admin, ""}});
    happen(IssueToken{{.id = "b1", .person = "bob", .hash = "x"}});
  }

  JobId submit_to(const QueueName& queue, const people::Name& user) {
    JobSpec one = spec(1);
    one.queue = queue;
    one.user = user;
    return submit(one);
  }
  void person(const people::Name& name, std::vector<Grant> grants) {
    EXPECT_TRUE(happen(SetPerson{.name = name, .grants = std::move(grants)}).reply.ok());
  }
  bool may(const Caller& caller, const Event& event) const { return authorize(state, caller, event).ok(); }
  ErrorCode refusal(const Caller& caller, const Event& event) const {
    return authorize(state, caller, event).error().code();
  }
  static Submit submit_in(const QueueName& queue) {
    JobSpec one = spec(1);
    one.queue = queue;
    return Submit{{one}};
  }

  JobId bobs;
};

// The least role in research, or in everything, that may ask for it.
TEST_F(AuthorizeTest, EachRequestTakesItsRole) {
  const people::Token service_token{.id = "n", .person = "robot"};
  ASSERT_TRUE(happen(SetPerson{.name = "robot",
                               .kind = people::Kind::service,
                               .grants = std::vector<Grant>{{Role::user, "research"}}})
                  .reply.ok());
  const std::vector<std::pair<Event, Role>> in_research{
      {submit_in("research"), Role::user},
      {Cancel{bobs, ""}, Role::queue_admin},
      {Release{bobs}, Role::queue_admin},
      {SetQueue{.name = "research/vision"}, Role::queue_admin},
      {SetQueue{.name = "research/new"}, Role::queue_admin},
      {RemoveQueue{"research/vision"}, Role::queue_admin},
      {RemoveJobs{{bobs}}, Role::queue_admin},
      {SetPerson{.name = "new", .grants = std::vector<Grant>{{Role::queue_admin, "research"}}},
       Role::queue_admin},
      {SetPerson{.name = "bob", .blocked = true}, Role::queue_admin},
      {SetPerson{.name = "robot", .grants = std::vector<Grant>{{Role::viewer, "research"}}},
       Role::queue_admin},
      {SetPerson{.name = "program",
                 .kind = people::Kind::service,
                 .grants = std::vector<Grant>{{Role::user, "research"}}},
       Role::admin},
      {RemovePerson{"bob"}, Role::queue_admin},
      {IssueToken{service_token}, Role::queue_admin},
      {SetQueue{.name = "research"}, Role::operate},
      {SetQueue{.name = "new"}, Role::operate},
      {RemoveQueue{"production"}, Role::operate},
      {Drain{"a"}, Role::operate},
      {Resume{"a"}, Role::operate},
      {RemoveNode{"a"}, Role::operate},
      {FabricMeasured{}, Role::operate},
      {MakeJoinToken{}, Role::operate},
      {RevokeJoinToken{}, Role::operate},
      {RevokeNode{}, Role::operate},
      {SetPerson{.name = "new", .grants = std::vector<Grant>{{Role::viewer, ""}}}, Role::operate},
      {SetPerson{.name = "new", .grants = std::vector<Grant>{{Role::operate, ""}}}, Role::admin},
      {SetPerson{.name = "root2", .blocked = true}, Role::admin},
      {RemovePerson{"root2"}, Role::admin},
      {IssueToken{{.id = "n", .person = "bob"}}, Role::admin},
      {RevokeToken{"b1"}, Role::admin},
      {SetSecret{.id = {SecretId::Of::queue, "research", "T"}}, Role::queue_admin},
      {SetSecret{.id = {SecretId::Of::queue, "research/vision", "T"}}, Role::queue_admin},
      {RemoveSecret{{SecretId::Of::queue, "research", "T"}}, Role::queue_admin},
      {RemoveSecret{{SecretId::Of::person, "bob", "T"}}, Role::admin},
      {UseSecretKey{"k"}, Role::admin},
  };
  for (std::size_t at = 0; at < in_research.size(); ++at) {
    const auto& [event, least] = in_research[at];
    for (const Role role : people::roles) {
      const bool of_all = role > Role::queue_admin;
      EXPECT_EQ(may(with(role, of_all ? "" : "research"), event), role >= least)
          << "request " << at << " by " << people::name_of(role);
      if (!of_all) {
        EXPECT_FALSE(may(with(role, "production"), event)) << "request " << at << " from elsewhere";
      }
    }
    EXPECT_TRUE(may(people::root_caller(), event)) << at;
    EXPECT_FALSE(may({.name = "ada"}, event)) << at;
  }
}

// Whoever is named with the cluster's own token needs to be let in by nobody; his jobs and secrets would be
// of whom a queue-admin lets in, blocks and removes.
TEST_F(AuthorizeTest, WhoHasJobsOrSecretsIsMadeKnownByAnAdminAlone) {
  const auto let_in = [](const people::Name& name) {
    return SetPerson{.name = name, .grants = std::vector<Grant>{{Role::user, "research"}}};
  };
  submit_to("production", "carol");
  happen(
      SetSecret{.id = {SecretId::Of::person, "dora", "T"}, .key = "k", .sealed = "0123456789", .bytes = 5});
  const Caller queue_admin = with(Role::queue_admin, "research");
  for (const char* name : {"carol", "dora"}) {
    EXPECT_FALSE(may(queue_admin, let_in(name))) << name;
    EXPECT_FALSE(may(queue_admin, SetPerson{.name = name, .blocked = true})) << name;
    EXPECT_TRUE(may(with(Role::admin, ""), let_in(name))) << name;
  }
  EXPECT_TRUE(may(queue_admin, let_in("eve")));
}

TEST_F(AuthorizeTest, WhatAgentsAndTimeBringNobodyAsksFor) {
  const std::vector<Event> events{Hello{}, Heard{},     Reported{},   Planned{},          Expire{},
                                  Tick{},  PortsHeld{}, EndDoomed{},  ClockSet{},         Join{},
                                  Renew{}, LogIn{},     TokensUsed{}, SecretsRewrapped{}, SecretsWithheld{},
                                  Tend{}};
  for (const Event& event : events) EXPECT_FALSE(may(people::root_caller(), event)) << event.index();
}

TEST_F(AuthorizeTest, EverybodySetsHisOwnSecretsAndNobodyElses) {
  const SecretId of_ada{SecretId::Of::person, "ada", "T"};
  const SecretId of_bob{SecretId::Of::person, "bob", "T"};
  const SecretId of_queue{SecretId::Of::queue, "research", "T"};
  const Caller user = with(Role::user, "production");
  EXPECT_TRUE(may(user, SetSecret{.id = of_ada}) && may(user, RemoveSecret{of_ada}));
  EXPECT_FALSE(may(user, SetSecret{.id = of_bob}) || may(user, RemoveSecret{of_bob}));
  EXPECT_FALSE(may(with(Role::viewer, "production"), SetSecret{.id = of_ada}));
  EXPECT_FALSE(may(with(Role::admin, ""), SetSecret{.id = of_bob})) << "an admin acts for nobody";
  EXPECT_TRUE(may(people::root_caller(), SetSecret{.id = of_bob})) << "the cluster's own token does";
  Caller bounded = user;
  bounded.queue = "production";
  EXPECT_FALSE(may(bounded, SetSecret{.id = of_ada})) << "his jobs elsewhere would get it";
  Event event = SetSecret{.id = of_ada, .by = "bob"};
  sign(event, user);
  EXPECT_EQ(std::get<SetSecret>(event).by, "ada");

  EXPECT_TRUE(may_see(user, of_ada) && !may_see(user, of_bob) && !may_see(user, of_queue));
  EXPECT_TRUE(may_see(with(Role::user, "research"), of_queue));
  EXPECT_TRUE(may_see(with(Role::user, "research/vision"), of_queue)) << "his jobs there get it";
  EXPECT_FALSE(may_see(with(Role::viewer, "research"), of_queue));
  EXPECT_TRUE(may_see(with(Role::admin, ""), of_bob));
}

// Replicas run as the account of whose the service is: what they run nobody else says.
TEST_F(AuthorizeTest, WhoMadeAServiceSaysWhatItServesAndItsQueueWhatBecomesOfIt) {
  Serve serve;
  serve.name = "chat";
  serve.replica = spec(1);
  serve.replica.user = "bob";
  serve.replica.queue = "research";
  serve.key = {.id = {SecretId::Of::service, "chat", std::string(engine_key_name)},
               .key = "k1",
               .sealed = std::string(64, 's'),
               .bytes = 32};
  EXPECT_TRUE(may(with(Role::user, "research"), serve));
  EXPECT_FALSE(may(with(Role::viewer, "research"), serve));
  EXPECT_FALSE(may(with(Role::queue_admin, "production"), serve));
  EXPECT_TRUE(may(people::root_caller(), serve));
  ASSERT_TRUE(happen(serve).reply.ok());

  const Caller bob = with(Role::user, "research", "bob");
  EXPECT_TRUE(may(bob, serve));
  EXPECT_EQ(refusal(with(Role::admin, ""), serve), ErrorCode::forbidden) << "it would run as bob";
  EXPECT_TRUE(may(people::root_caller(), serve));
  for (const Event& event : std::vector<Event>{Promote{"chat"}, RollBack{"chat"}, ScaleService{"chat", 1, 2},
                                               StopService{"chat"}}) {
    EXPECT_TRUE(may(bob, event)) << event.index();
    EXPECT_FALSE(may(with(Role::user, "research"), event)) << event.index();
    EXPECT_TRUE(may(with(Role::queue_admin, "research"), event)) << event.index();
    EXPECT_EQ(refusal(with(Role::queue_admin, "production"), event), ErrorCode::invalid)
        << "it is not there for him";
  }
  EXPECT_FALSE(may(with(Role::queue_admin, "research"), GatewayTold{}));
  EXPECT_TRUE(may(with(Role::operate, ""), GatewayTold{}));
  Event signed_serve = serve;
  sign(signed_serve, with(Role::user, "research"));
  EXPECT_EQ(std::get<Serve>(signed_serve).replica.user, "ada");
  // Nobody sets, removes or sees the key of a service.
  const SecretId key = serve.key.id;
  EXPECT_FALSE(may(people::root_caller(), SetSecret{.id = key}));
  EXPECT_FALSE(may(people::root_caller(), RemoveSecret{key}));
  EXPECT_FALSE(may_see(with(Role::admin, ""), key));
  EXPECT_EQ(visible_service(state, with(Role::viewer, "production"), "chat"), nullptr);
  EXPECT_NE(visible_service(state, with(Role::viewer, "research"), "chat"), nullptr);
}

TEST_F(AuthorizeTest, WhatSomebodyMayNotSeeIsNotThereForHim) {
  const Caller stranger = with(Role::queue_admin, "production");
  EXPECT_EQ(refusal(stranger, Cancel{bobs, ""}), ErrorCode::invalid);
  EXPECT_EQ(refusal(stranger, RemoveJobs{{bobs}}), ErrorCode::invalid);
  EXPECT_EQ(refusal(stranger, RevokeToken{"b1"}), ErrorCode::invalid);
  EXPECT_EQ(refusal(with(Role::viewer, "research"), Cancel{bobs, ""}), ErrorCode::forbidden);
  EXPECT_EQ(visible_job(state, stranger, bobs), nullptr);
  Submit after = submit_in("production");
  after.specs.front().after = {{bobs, false}};
  EXPECT_FALSE(may(stranger, after)) << "it would tell when the job ends";
}

TEST_F(AuthorizeTest, AJobIsOfWhoSubmitsItWhateverTheRequestSays) {
  Event event = submit_in("research");
  std::get<Submit>(event).specs.front().user = "bob";
  sign(event, with(Role::user, "research"));
  EXPECT_EQ(std::get<Submit>(event).specs.front().user, "ada");
  Event cancel = Cancel{bobs, "bob"};
  sign(cancel, with(Role::queue_admin, "research"));
  EXPECT_EQ(std::get<Cancel>(cancel).by, "ada");
  // The cluster's own token is nobody's, and acts for whom it names.
  event = submit_in("research");
  std::get<Submit>(event).specs.front().user = "bob";
  sign(event, people::root_caller());
  EXPECT_EQ(std::get<Submit>(event).specs.front().user, "bob");
}

TEST_F(AuthorizeTest, HisOwnJobsSomebodySeesAndOnlyThoseOfHisToken) {
  Caller bob{.name = "bob"};
  EXPECT_NE(visible_job(state, bob, bobs), nullptr) << "without a role there, too";
  EXPECT_FALSE(may(bob, Cancel{bobs, ""})) << "but he may not end it";
  bob.queue = "production";
  EXPECT_EQ(visible_job(state, bob, bobs), nullptr);
  // Whoever calls himself as the cluster's own token is called is not it.
  EXPECT_FALSE(people::check_name(people::root_name).ok());
}

TEST_F(AuthorizeTest, WithAQueueGoTheRolesInItAndTheTokensForIt) {
  person("ada", {{Role::queue_admin, "research/vision"}, {Role::viewer, "production"}});
  ASSERT_TRUE(
      happen(IssueToken{{.id = "t1", .person = "ada", .hash = "h", .queue = "research/vision"}}).reply.ok());
  const auto effects = happen(RemoveQueue{"research/vision"});
  ASSERT_TRUE(effects.reply.ok());
  EXPECT_EQ(effects.persons, std::set<people::Name>{"ada"});
  EXPECT_EQ(effects.tokens, std::set<people::TokenId>{"t1"});
  EXPECT_EQ(state.people.persons.at("ada").grants, (std::vector<Grant>{{Role::viewer, "production"}}));
  EXPECT_FALSE(state.people.tokens.contains("t1"));
}

// Ranks run as the Unix account that is called as the user: whoever names an account of a program, and has
// tokens for it, acts as whom he likes.
TEST_F(AuthorizeTest, WhoLetsPeopleIntoAQueueActsAsNobodyElseByWayOfAProgram) {
  const Caller lead = with(Role::queue_admin, "research");
  const std::vector<Grant> in_research{{Role::user, "research"}};
  const SetPerson bob_as_a_program{.name = "bob", .kind = people::Kind::service, .grants = in_research};
  happen(Cancel{bobs, "", false, true});
  all_exit(bobs, 143);
  EXPECT_TRUE(may(lead, RemovePerson{"bob"}));
  ASSERT_TRUE(happen(RemovePerson{"bob"}).reply.ok());
  EXPECT_EQ(refusal(lead, bob_as_a_program), ErrorCode::forbidden);
  // One whose queue has gone is nobody's until an admin has looked at it.
  ASSERT_TRUE(happen(SetPerson{.name = "robot",
                               .kind = people::Kind::service,
                               .grants = std::vector<Grant>{{Role::user, "research/vision"}}})
                  .reply.ok());
  EXPECT_TRUE(may(lead, IssueToken{{.id = "n", .person = "robot"}}));
  ASSERT_TRUE(happen(RemoveQueue{"research/vision"}).reply.ok());
  EXPECT_EQ(refusal(lead, SetPerson{.name = "robot", .grants = in_research}), ErrorCode::forbidden);
  EXPECT_EQ(refusal(lead, IssueToken{{.id = "n", .person = "robot"}}), ErrorCode::forbidden);
  EXPECT_TRUE(may(with(Role::admin, ""), SetPerson{.name = "robot", .grants = in_research}));
}

TEST_F(AuthorizeTest, WhomSomebodyHasBlockedNobodyBelowHimLetsInAgain) {
  const Caller part = with(Role::queue_admin, "research/vision", "part");
  const Caller lead = with(Role::queue_admin, "research", "lead");
  const Caller admin = with(Role::admin, "", "root2");
  person("eve", {{Role::user, "research/vision"}});
  const auto block = [&](const Caller& by) {
    Event event = SetPerson{.name = "eve", .blocked = true};
    sign(event, by);
    ASSERT_TRUE(happen(event).reply.ok());
  };
  const SetPerson unblock{.name = "eve", .blocked = false};
  const SetPerson roles{.name = "eve", .grants = std::vector<Grant>{{Role::viewer, "research/vision"}}};
  block(part);
  EXPECT_TRUE(may(part, unblock) && may(part, RemovePerson{"eve"}) && may(lead, unblock));
  block(lead);
  EXPECT_FALSE(may(part, unblock));
  EXPECT_FALSE(may(part, RemovePerson{"eve"})) << "he would let him in anew";
  EXPECT_TRUE(may(part, roles)) << "what he may when he is back";
  EXPECT_TRUE(may(lead, unblock));
  block(part);
  EXPECT_FALSE(may(part, unblock)) << "once more is no less";
  block(admin);
  EXPECT_EQ(refusal(lead, unblock), ErrorCode::forbidden);
  EXPECT_EQ(refusal(lead, RemovePerson{"eve"}), ErrorCode::forbidden);
  EXPECT_TRUE(may(admin, unblock) && may(admin, RemovePerson{"eve"}) && may(people::root_caller(), unblock));
  ASSERT_TRUE(happen(unblock).reply.ok());
  block(part);
  EXPECT_TRUE(may(part, unblock)) << "it is over";
}

TEST_F(AuthorizeTest, WithAQueueGoesWhoCouldLetInAgainThere) {
  person("eve", {{Role::user, "research/vision"}});
  Event block = SetPerson{.name = "eve", .blocked = true};
  sign(block, with(Role::queue_admin, "research/vision"));
  ASSERT_TRUE(happen(block).reply.ok());
  ASSERT_TRUE(happen(RemoveQueue{"research/vision"}).reply.ok());
  EXPECT_EQ(state.people.persons.at("eve").blocked_by, (Grant{Role::queue_admin, "research"}));
}

TEST_F(AuthorizeTest, WhoHasNoRoleAnyMoreIsAnAdminsToChange) {
  const Caller lead = with(Role::queue_admin, "production");
  person("eve", {});
  EXPECT_EQ(refusal(lead, SetPerson{.name = "eve", .blocked = false}), ErrorCode::forbidden);
  EXPECT_EQ(refusal(lead, SetPerson{.name = "eve", .grants = std::vector<Grant>{{Role::user, "production"}}}),
            ErrorCode::forbidden);
  EXPECT_EQ(refusal(lead, RemovePerson{"eve"}), ErrorCode::forbidden);
  EXPECT_TRUE(may(lead, SetPerson{.name = "new", .grants = std::vector<Grant>{{Role::user, "production"}}}));
  EXPECT_TRUE(may(with(Role::admin, ""), RemovePerson{"eve"}));
}

TEST_F(AuthorizeTest, ATokenRevokesNoneThatMayMoreThanItself) {
  Caller bob{.name = "bob", .grants = {{Role::viewer, "research"}}, .role_max = Role::viewer};
  EXPECT_EQ(refusal(bob, RevokeToken{"b1"}), ErrorCode::forbidden);
  bob.role_max = Role::admin;
  EXPECT_TRUE(may(bob, RevokeToken{"b1"}));
  bob.queue = "research";
  EXPECT_EQ(refusal(bob, RevokeToken{"b1"}), ErrorCode::forbidden) << "it is for all queues";
  ASSERT_TRUE(
      happen(IssueToken{{.id = "b2", .person = "bob", .hash = "y", .queue = "research/vision"}}).reply.ok());
  EXPECT_TRUE(may(bob, RevokeToken{"b2"}));
}

TEST_F(AuthorizeTest, NobodyIsRemovedWhileHisJobsRunBecauseTheyWouldBeOfWhoeverIsCalledSoLater) {
  EXPECT_FALSE(happen(RemovePerson{"bob"}).reply.ok());
  happen(Cancel{bobs, ""});
  all_exit(bobs, 143);
  ASSERT_TRUE(job(bobs).finished());
  const auto effects = happen(RemovePerson{"bob"});
  EXPECT_TRUE(effects.reply.ok());
  EXPECT_EQ(effects.tokens, std::set<people::TokenId>{"b1"}) << "his tokens go with him";
  EXPECT_FALSE(happen(RemovePerson{"bob"}).reply.ok());
}

TEST_F(AuthorizeTest, WhoIsCalledSoNextSeesNothingOfTheJobsOfTheOneBefore) {
  const Caller bob{.name = "bob"};
  const Submit keyed{{job(bobs).spec}, "the same key"};
  const auto with_key = happen(keyed).reply;
  ASSERT_TRUE(with_key.ok());
  EXPECT_NE(visible_job(state, bob, bobs), nullptr);
  for (const JobId id : {bobs, with_key->front()}) {
    happen(Cancel{id, "", false, true});
    all_exit(id, 143);
  }
  ASSERT_TRUE(happen(RemovePerson{"bob"}).reply.ok());
  person("bob", {{Role::user, "production"}});
  EXPECT_EQ(visible_job(state, bob, bobs), nullptr);
  EXPECT_EQ(visible_job(state, with(Role::user, "production", "bob"), bobs), nullptr);
  EXPECT_NE(visible_job(state, with(Role::viewer, "research"), bobs), nullptr) << "his team of then does";
  EXPECT_NE(visible_job(state, with(Role::admin, ""), bobs), nullptr);
  EXPECT_NE(visible_job(state, bob, submit_to("production", "bob")), nullptr) << "his own";
  const auto again = happen(keyed).reply;
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->front(), with_key->front()) << "it is no repetition of what the other one has sent";
  state.people.persons.at("bob").jobs_from = 0;
  EXPECT_NE(visible_job(state, bob, bobs), nullptr) << "whom an earlier version has stored";
}

TEST_F(AuthorizeTest, ATeamSeesNothingOfAQueueThatWasCalledAsItsOwn) {
  const JobId old = submit_to("research/vision", "bob");
  happen(Cancel{old, "", false, true});
  all_exit(old, 143);
  const Caller team = with(Role::queue_admin, "research/vision");
  EXPECT_NE(visible_job(state, team, old), nullptr);
  ASSERT_TRUE(happen(RemoveQueue{"research/vision"}).reply.ok());
  ASSERT_TRUE(happen(SetQueue{.name = "research/vision"}).reply.ok());
  EXPECT_EQ(visible_job(state, team, old), nullptr);
  EXPECT_EQ(refusal(team, RemoveJobs{{old}}), ErrorCode::invalid) << "it is not there for them";
  EXPECT_NE(visible_job(state, with(Role::viewer, "research"), old), nullptr) << "who saw it before";
  EXPECT_NE(visible_job(state, with(Role::viewer, ""), old), nullptr);
  const JobId later = submit_to("research/vision", "bob");
  EXPECT_NE(visible_job(state, team, later), nullptr);
  ASSERT_TRUE(happen(SetQueue{.name = "research/vision", .weight = 2}).reply.ok());
  EXPECT_NE(visible_job(state, team, later), nullptr) << "it was changed, and not made anew";
}

TEST_F(AuthorizeTest, TokensAreBoundedAndExpire) {
  people::Token token{.id = "t0", .person = "bob", .hash = "h", .expires_at = now};
  EXPECT_FALSE(happen(IssueToken{token}).reply.ok()) << "it would never open anything";
  token.expires_at = now + people::token_life_max + 1s;
  EXPECT_FALSE(happen(IssueToken{token}).reply.ok());
  token.expires_at = now + 1h;
  for (std::size_t at = 1; at < people::tokens_per_person_max; ++at) {
    token.id = "t" + std::to_string(at);
    ASSERT_TRUE(happen(IssueToken{token}).reply.ok()) << at;
  }
  token.id = "more";
  EXPECT_FALSE(happen(IssueToken{token}).reply.ok());
  EXPECT_FALSE(happen(IssueToken{{.id = "x", .person = "nobody-here"}}).reply.ok());
  now += 1h + 24h * 7;
  happen(Expire{});
  EXPECT_EQ(state.people.tokens.size(), 1U) << "that of bob which does not expire";
  EXPECT_TRUE(state.people.expiring.empty());
}

TEST_F(AuthorizeTest, WhoLogsInIsWhoWasLetInAndTheSameAsBefore) {
  const auto log_in = [&](const people::Name& name, const std::string& login, const std::string& id) {
    return happen(LogIn{login, {.id = id, .person = name, .hash = "h"}}).reply;
  };
  EXPECT_EQ(log_in("stranger", "i 1", "l0").error().code(), ErrorCode::forbidden);
  EXPECT_TRUE(log_in("bob", "i 7", "l1").ok());
  EXPECT_TRUE(log_in("bob", "i 7", "l2").ok());
  EXPECT_EQ(log_in("bob", "i 8", "l3").error().code(), ErrorCode::forbidden)
      << "his name was given to another one";
  EXPECT_EQ(log_in("bob", "j 7", "l3").error().code(), ErrorCode::forbidden) << "another issuer's";
  ASSERT_TRUE(happen(SetPerson{.name = "bob", .blocked = true}).reply.ok());
  EXPECT_FALSE(log_in("bob", "i 7", "l3").ok());
  ASSERT_TRUE(happen(SetPerson{.name = "bob", .blocked = false}).reply.ok());
  for (std::size_t at = 0; at < 2 * people::logins_per_person_max; ++at) {
    now += 1s;
    ASSERT_TRUE(log_in("bob", "i 7", "m" + std::to_string(at)).ok());
  }
  EXPECT_EQ(state.people.tokens_of.at("bob").size(), people::logins_per_person_max + 1) << "and b1";
  EXPECT_TRUE(state.people.tokens.contains("b1"));
  EXPECT_FALSE(state.people.tokens.contains("l1"));
}

TEST_F(AuthorizeTest, WhoLetsPeopleIntoAQueueLeavesRoomForThoseOfOthers) {
  const Caller lead = with(Role::queue_admin, "research");
  const Caller admin = with(Role::admin, "");
  const SetPerson one{.name = "one-more", .kind = {}, .grants = std::vector<Grant>(), .blocked = {}};
  EXPECT_TRUE(may(lead, one));
  while (state.people.persons.size() < people::people_made_by_others_max) {
    const people::Name name = "p" + std::to_string(state.people.persons.size());
    state.people.persons[name].name = name;
  }
  EXPECT_FALSE(may(lead, one));
  state.people.persons["p7"].grants = {{Role::user, "research"}};
  EXPECT_TRUE(may(lead, SetPerson{.name = "p7", .kind = {}, .grants = std::vector<Grant>(), .blocked = {}}))
      << "one who is there";
  EXPECT_TRUE(may(admin, one));

  const IssueToken mine{{.id = "mine", .person = "ada", .hash = "h"}};
  person("ada", {{Role::user, "research"}});
  EXPECT_TRUE(may(with(Role::user, "research"), mine));
  while (state.people.tokens.size() < people::tokens_made_by_others_max)
    people::add(state.people, {.id = "t" + std::to_string(state.people.tokens.size()), .person = "p7"});
  EXPECT_FALSE(may(with(Role::user, "research"), mine));
  EXPECT_TRUE(may(admin, mine));
}

TEST_F(AuthorizeTest, PeopleLogInHoweverManyTokensThereAre) {
  const auto log_in = [&](const std::string& id) {
    return happen(LogIn{"i 7", {.id = id, .person = "bob", .hash = "h", .expires_at = now + 24h}}).reply;
  };
  ASSERT_TRUE(log_in("l1").ok());
  people::add(state.people, {.id = "old", .person = "bob", .hash = "h", .expires_at = now - 1s});
  while (state.people.tokens.size() < people::tokens_max)
    people::add(state.people, {.id = "t" + std::to_string(state.people.tokens.size()), .person = "eve"});
  EXPECT_TRUE(log_in("l2").ok());
  EXPECT_FALSE(state.people.tokens.contains("old")) << "that one opened nothing any more";
  EXPECT_TRUE(state.people.tokens.contains("l1"));
  EXPECT_TRUE(log_in("l3").ok());
  EXPECT_FALSE(state.people.tokens.contains("l1")) << "then his own oldest";
  EXPECT_EQ(state.people.tokens.size(), people::tokens_max);
}

TEST_F(AuthorizeTest, WhenATokenWasUsedIsNotedOnceAnHour) {
  const auto used = happen(TokensUsed{{"b1", "gone"}});
  EXPECT_EQ(used.tokens_used, std::set<people::TokenId>{"b1"});
  EXPECT_TRUE(used.tokens.empty()) << "it opens what it did: whoever follows with it is not cut off";
  now += 59min;
  EXPECT_TRUE(happen(TokensUsed{{"b1"}}).tokens_used.empty());
  now += 1min;
  EXPECT_FALSE(happen(TokensUsed{{"b1"}}).tokens_used.empty());
}

}  // namespace
}  // namespace tutti::cluster
