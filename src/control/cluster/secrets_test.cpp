// Secrets in the state machine: whose they are, which a job gets, and what becomes of a job that gets none.
#include "control/cluster/secrets.hpp"

#include "control/cluster/authorize.hpp"
#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

using Of = SecretId::Of;

struct SecretsTest : ClusterTest {
  void SetUp() override {
    ClusterTest::SetUp();
    join("a", 4);
    for (const char* queue : {"research", "research/vision", "production"}) happen(SetQueue{.name = queue});
    person("ada", "research/vision");
  }
  void person(const people::Name& name, const QueueName& queue) {
    EXPECT_TRUE(happen(SetPerson{.name = name,
                                 .kind = people::Kind::person,
                                 .grants = std::vector<people::Grant>{{people::Role::user, queue}},
                                 .blocked = {}})
                    .reply.ok());
  }
  static SetSecret sealed(const SecretId& id, std::int32_t bytes = 5, const std::string& key = "k1") {
    return {.id = id,
            .key = key,
            .sealed = std::string(static_cast<std::size_t>(bytes) + 28, 's'),
            .bytes = bytes};
  }
  bool set(const SecretId& id, std::int32_t bytes = 5, const std::string& key = "k1") {
    return happen(sealed(id, bytes, key)).reply.ok();
  }
  static JobSpec asks_for(std::vector<std::string> names, const QueueName& queue = "research/vision") {
    JobSpec one = spec(1);
    one.user = "ada";
    one.queue = queue;
    one.secrets = std::move(names);
    return one;
  }
  std::string refusal(const JobSpec& what) {
    const auto reply = happen(Submit{{what}}).reply;
    return reply ? "" : reply.error().text() + "; " + reply.error().remedy();
  }
  SecretId given(const JobSpec& what) const {
    const auto found = secrets_of(state, what);
    return found && !found->empty() ? found->front()->id : SecretId();
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  const SecretId own{Of::person, "ada", "T"};
  const SecretId near{Of::queue, "research/vision", "T"};
  const SecretId above{Of::queue, "research", "T"};
};

TEST_F(SecretsTest, TheNearestOfThatNameIsGiven) {
  EXPECT_TRUE(has(refusal(asks_for({"T"})), "there is no secret T that 'ada' may use"));
  EXPECT_TRUE(set(above));
  EXPECT_EQ(given(asks_for({"T"})), above);
  EXPECT_TRUE(set(near));
  EXPECT_EQ(given(asks_for({"T"})), near);
  EXPECT_EQ(given(asks_for({"T"}, "research")), SecretId()) << "he may not submit there";
  EXPECT_TRUE(set(own));
  EXPECT_EQ(given(asks_for({"T"})), own);
  JobSpec of_another = asks_for({"T"});
  of_another.user = "bob";
  EXPECT_EQ(given(of_another), near) << "his own is nobody else's";
  EXPECT_EQ(given(asks_for({"T"}, "production")), own) << "his own goes where he goes";
  EXPECT_TRUE(happen(RemoveSecret{own}).reply.ok());
  EXPECT_EQ(given(asks_for({"T"}, "production")), SecretId()) << "that of a queue does not";
}

TEST_F(SecretsTest, NamesAndSizesAreBounded) {
  for (const std::string& name :
       {std::string(), std::string("-a"), std::string(".a"), std::string("a/b"), std::string("a b"),
        std::string("ä"), std::string(65, 'a'), std::string("a\0b", 3), std::string("..")}) {
    EXPECT_FALSE(set({Of::person, "ada", name})) << name;
    EXPECT_FALSE(check_secret_names({name})) << name;
  }
  EXPECT_TRUE(set({Of::person, "ada", "A.b_c-9"}));
  EXPECT_FALSE(set(own, 0));
  EXPECT_TRUE(set(own, secret_bytes_max));
  EXPECT_FALSE(set(own, secret_bytes_max + 1));
  EXPECT_FALSE(set({Of::queue, "nothing", "T"}));
  EXPECT_FALSE(check_secret_names({"A", "A"}));
  EXPECT_FALSE(check_secret_names(std::vector<std::string>(job_secrets_max + 1, "A")));

  // Together a job gets 256 KiB.
  for (const char* name : {"L1", "L2", "L3", "L4"}) EXPECT_TRUE(set({Of::person, "ada", name}, 65'536));
  EXPECT_EQ(refusal(asks_for({"L1", "L2", "L3", "L4"})), "");
  EXPECT_TRUE(has(refusal(asks_for({"L1", "L2", "L3", "L4", "A.b_c-9"})), "262149 bytes together"));
}

TEST_F(SecretsTest, ThereIsRoomForSoManyOfOneAndOfAll) {
  for (std::size_t at = 0; at < secrets_of_one_max; ++at)
    state.secrets.emplace(
        SecretId{Of::person, "ada", "S" + std::to_string(at)},
        Secret{{Of::person, "ada", "S" + std::to_string(at)}, "k1", "0123456789", 1, {}, ""});
  state.secret_key = "k1";
  EXPECT_FALSE(set(own));
  EXPECT_TRUE(set({Of::person, "ada", "S0"})) << "one that is there is replaced";
  EXPECT_TRUE(set({Of::person, "bob", "T"}));
  for (std::size_t at = 0; state.secrets.size() < secrets_max; ++at)
    state.secrets.emplace(SecretId{Of::person, "p" + std::to_string(at), "S"},
                          Secret{{Of::person, "p" + std::to_string(at), "S"}, "k1", "0123456789", 1, {}, ""});
  EXPECT_FALSE(set({Of::person, "bob", "U"}));
  EXPECT_TRUE(happen(RemoveSecret{{Of::person, "ada", "S1"}}).reply.ok());
  EXPECT_TRUE(set({Of::person, "bob", "U"}));
}

TEST_F(SecretsTest, TheSecretsOfPartsCountAsThoseOfTheirQueue) {
  const auto part = [](std::size_t number) { return "research/p" + std::to_string(number); };
  constexpr std::int32_t large = 65'000;
  std::size_t bytes = 0;
  std::size_t parts = 0;
  for (; bytes + large + 28 <= secrets_bytes_of_one_max; bytes += large + 28) {
    ASSERT_TRUE(happen(SetQueue{.name = part(++parts)}).reply.ok());
    ASSERT_TRUE(set({Of::queue, part(parts), "T"}, large)) << parts;
  }
  const auto refused = happen(sealed(near, large)).reply;
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(has(refused.error().text(), "the queue research with its parts has 8 MiB"))
      << refused.error().text();
  EXPECT_TRUE(set({Of::queue, part(1), "T"}, large)) << "one that is there is replaced";
  EXPECT_TRUE(set({Of::queue, "production", "T"}, large)) << "another queue has its own room";
  EXPECT_TRUE(set({Of::person, "research", "T"}, large)) << "and so has who is called so";
}

TEST_F(SecretsTest, HalfOfTheRoomIsForAdmins) {
  const people::Caller lead{.name = "lead", .grants = {{people::Role::queue_admin, "research"}}};
  const people::Caller admin{.name = "root2", .grants = {{people::Role::admin, ""}}};
  for (std::size_t at = 0; state.secrets.size() + 1 < secrets_set_by_others_max; ++at) {
    const SecretId id{Of::person, "p" + std::to_string(at), "S"};
    state.secrets.emplace(id, Secret{id, "k1", "0123456789", 1, {}, ""});
  }
  state.secret_key = "k1";
  EXPECT_TRUE(authorize(state, lead, sealed(above)).ok());
  ASSERT_TRUE(set(above));
  EXPECT_FALSE(authorize(state, lead, sealed(near)).ok());
  EXPECT_TRUE(authorize(state, lead, sealed(above)).ok()) << "one that is there is replaced";
  EXPECT_TRUE(authorize(state, admin, sealed(near)).ok());
  EXPECT_TRUE(authorize(state, people::root_caller(), sealed(near)).ok());
}

TEST_F(SecretsTest, AJobWhoseSecretIsGoneIsHeldUntilItIsThereAgain) {
  ASSERT_TRUE(set(own));
  JobSpec wanted = asks_for({"T"});
  wanted.shape.gpu_share = 4'000;
  const JobId first = submit(wanted);
  const JobId second = submit(wanted);
  ASSERT_TRUE(job(first).placed());
  ASSERT_FALSE(job(second).placed());
  EXPECT_TRUE(happen(RemoveSecret{own}).reply.ok());
  EXPECT_TRUE(job(first).placed()) << "what it was given it has";
  all_start(first);
  all_exit(first);
  EXPECT_EQ(state_name(job(second)), "held");
  EXPECT_TRUE(has(why(second), "no secret T")) << why(second);
  EXPECT_TRUE(has(why(second), "`tutti release " + second.text() + "`"));
  EXPECT_TRUE(happen(Release{second}).reply.ok());
  EXPECT_EQ(state_name(job(second)), "held") << "it is not there yet";
  ASSERT_TRUE(set(own));
  EXPECT_TRUE(happen(Release{second}).reply.ok());
  EXPECT_TRUE(job(second).placed());
}

TEST_F(SecretsTest, WhoMaySubmitNoMoreGetsNoneOfTheQueue) {
  ASSERT_TRUE(set(near));
  JobSpec wanted = asks_for({"T"});
  wanted.shape.gpu_share = 4'000;
  const JobId first = submit(wanted);
  const JobId second = submit(wanted);
  person("ada", "production");
  all_start(first);
  all_exit(first);
  EXPECT_EQ(state_name(job(second)), "held");
  person("ada", "research");
  EXPECT_TRUE(happen(Release{second}).reply.ok());
  EXPECT_TRUE(job(second).placed());
}

TEST_F(SecretsTest, WhatABlockedUserHasWaitingDoesNotStart) {
  ASSERT_TRUE(set(own));
  JobSpec wanted = asks_for({"T"});
  wanted.shape.gpu_share = 4'000;
  JobSpec bare = wanted;
  bare.secrets = std::vector<std::string>();
  const JobId first = submit(wanted);
  const JobId second = submit(wanted);
  const JobId third = submit(bare);
  ASSERT_TRUE(happen(SetPerson{.name = "ada", .kind = {}, .grants = {}, .blocked = true}).reply.ok());
  EXPECT_FALSE(secrets_of(state, wanted)) << "none is opened for him, nor a new value of one";
  EXPECT_TRUE(has(refusal(wanted), "'ada' is blocked")) << "nor does anybody submit in his name";
  all_start(first);
  EXPECT_EQ(job(first).ending, EndCause::none) << "what runs goes on";
  all_exit(first);
  for (const JobId id : {second, third}) {
    EXPECT_EQ(state_name(job(id)), "held");
    EXPECT_TRUE(has(why(id), "'ada' is blocked")) << why(id);
  }
  EXPECT_TRUE(happen(Release{third}).reply.ok());
  EXPECT_EQ(state_name(job(third)), "held") << "he still is";
  ASSERT_TRUE(happen(SetPerson{.name = "ada", .kind = {}, .grants = {}, .blocked = false}).reply.ok());
  EXPECT_TRUE(happen(Release{second}).reply.ok());
  EXPECT_TRUE(job(second).placed());
}

// Whoever tells nodes to start ranks finds that a key is missing: nothing of the attempt has run.
TEST_F(SecretsTest, WhatCannotBeOpenedHoldsTheJobAndBlamesNobody) {
  ASSERT_TRUE(set(own));
  const JobId id = submit(asks_for({"T"}));
  happen(SecretsWithheld{id, 0, "the key k1 is not there"});
  EXPECT_EQ(sent<EndRanks>(), 1U);
  RankStatus never{RankState::exited, 143, "it was ended before it started"};
  never.told = Told::yes;
  report(id, 0, never);
  EXPECT_EQ(state_name(job(id)), "held");
  EXPECT_TRUE(has(why(id), "the key k1 is not there")) << why(id);
  EXPECT_EQ(job(id).failures + job(id).losses + job(id).bad_ends, 0);
  EXPECT_EQ(state.nodes.at("a").faults, 0);
  happen(SecretsWithheld{id, 0, "late"});
  EXPECT_TRUE(happen(Release{id}).reply.ok());
  EXPECT_TRUE(job(id).placed());
  happen(SecretsWithheld{id, 0, "of the attempt before"});
  EXPECT_EQ(job(id).ending, EndCause::none);
}

TEST_F(SecretsTest, NoneIsLeftForWhoeverIsCalledSoNext) {
  ASSERT_TRUE(set(own) && set(near) && set(above) && set({Of::person, "bob", "T"}));
  EXPECT_TRUE(happen(RemovePerson{"ada"}).reply.ok());
  EXPECT_FALSE(state.secrets.contains(own));
  const Effects effects = happen(RemoveQueue{"research/vision"});
  EXPECT_TRUE(effects.secrets.contains(near)) << "and that is stored";
  EXPECT_FALSE(state.secrets.contains(near));
  EXPECT_TRUE(state.secrets.contains(above) && state.secrets.contains({Of::person, "bob", "T"}));
}

TEST_F(SecretsTest, UnderAnotherKeyNothingIsSetAndAllIsSealedAnew) {
  ASSERT_TRUE(set(own));
  EXPECT_EQ(state.secret_key, "k1");
  EXPECT_TRUE(happen(UseSecretKey{"k2"}).cluster) << "it is stored";
  EXPECT_FALSE(set(near, 5, "k1")) << "its key is about to go";
  EXPECT_TRUE(set(near, 5, "k2"));
  const std::string before = state.secrets.at(own).sealed;
  happen(SecretsRewrapped{"k1", {{own, before, std::string(40, 'x')}}});
  happen(SecretsRewrapped{"k2", {{own, "another", std::string(40, 'x')}}});
  EXPECT_EQ(state.secrets.at(own).sealed, before) << "of another key, or of what it was before";
  const Effects effects =
      happen(SecretsRewrapped{"k2", {{own, before, std::string(40, 'x')}, {above, "", "x"}}});
  EXPECT_EQ(effects.secrets, std::set<SecretId>{own});
  EXPECT_EQ(state.secrets.at(own).key, "k2");
  EXPECT_FALSE(state.secrets.contains(above));
  EXPECT_TRUE(frees_room(state, RemoveSecret{own}));
}

}  // namespace
}  // namespace tutti::cluster
