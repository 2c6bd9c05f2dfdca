#include <gtest/gtest.h>

#include "control/wire/full_test.hpp"
#include "control/wire/objects.hpp"

namespace tutti::wire {
namespace {

TEST(Store, JobsAndNodesComeBackAsTheyWere) {
  cluster::State state;
  cluster::Job job = full_job();
  job.held = "is held";
  ASSERT_TRUE(decode_into(state, asked_key(cluster::JobId(40)), encode_asked(job.spec)).ok());
  ASSERT_TRUE(decode_into(state, job_key(job.id), encode(job)).ok());
  EXPECT_EQ(state.jobs.at(job.id), job);
  EXPECT_TRUE(state.stored_whole.empty());
  cluster::Node node;
  node.name = "n1";
  node.location = "s/p/r";
  node.address = "10.0.0.1";
  node.agent_pid = 77;
  node.inventory = {{{"H100", gib(80), "uuid", 1}}, 16, gib(64), 300};
  node.draining = node.lost = true;
  node.fault = "the disk is full";
  node.faults = 3;
  node.times_set_aside = 2;
  node.back_at = Instant(1'700'000'001s);
  ASSERT_TRUE(decode_into(state, node_key("n1"), encode(node)).ok());
  EXPECT_EQ(state.nodes.at("n1"), node);
}

TEST(Store, PeopleAndTheirTokensComeBackAsTheyWere) {
  cluster::State state;
  const people::Person person{.name = "ada",
                              .kind = people::Kind::service,
                              .grants = {{people::Role::viewer, ""}, {people::Role::queue_admin, "a/b"}},
                              .blocked = true,
                              .made_at = Instant(1'700'000'001s),
                              .login = "https://id.example 17",
                              .jobs_from = 12,
                              .blocked_by = {people::Role::queue_admin, "a"}};
  const people::Token token{.id = "0123456789abcdef",
                            .person = "ada",
                            .hash = std::string(64, 'a'),
                            .role_max = people::Role::user,
                            .queue = "a",
                            .purpose = "dashboard",
                            .made_at = Instant(1'700'000'002s),
                            .expires_at = Instant(1'800'000'000s),
                            .used_at = Instant(1'700'000'003s)};
  ASSERT_TRUE(decode_into(state, person_key("ada"), encode(person)).ok());
  ASSERT_TRUE(decode_into(state, token_key(token.id), encode(token)).ok());
  EXPECT_EQ(state.people.persons.at("ada"), person);
  people::Person allowed{.name = "bob"};
  ASSERT_TRUE(decode_into(state, person_key("bob"), encode(allowed)).ok());
  EXPECT_EQ(state.people.persons.at("bob"), allowed);
  EXPECT_EQ(state.people.tokens.at(token.id), token);
  EXPECT_EQ(state.people.tokens_of.at("ada"), std::set<people::TokenId>{token.id});
  EXPECT_FALSE(decode_into(state, token_key("t"), "\xff\xff").ok());
  people::Token hashless = token;
  hashless.hash = "";
  EXPECT_FALSE(decode_into(state, token_key("t"), encode(hashless)).ok()) << "it would open to anything";
}

TEST(Store, SecretsComeBackAsTheyWere) {
  using Of = cluster::SecretId::Of;
  cluster::State state;
  const cluster::Secret own{.id = {Of::person, "somebody with spaces", "T"},
                            .key = "0123456789abcdef",
                            .sealed = std::string("\0\xff sealed", 9),
                            .bytes = 3,
                            .changed_at = Instant(1'700'000'001s),
                            .changed_by = "ada"};
  cluster::Secret shared = own;
  shared.id = {Of::queue, "research/vision", "T"};
  for (const auto& secret : {own, shared}) {
    ASSERT_TRUE(decode_into(state, secret_key(secret.id), encode(secret)).ok());
    EXPECT_EQ(state.secrets.at(secret.id), secret);
  }
  EXPECT_NE(secret_key({Of::person, "a b", "c"}), secret_key({Of::queue, "a b", "c"}));
  EXPECT_FALSE(decode_into(state, "secret/person ada T", "\xff\xff").ok());
  cluster::Secret bare = own;
  bare.key = "";
  EXPECT_FALSE(decode_into(state, secret_key(own.id), encode(bare)).ok());
  state.cluster_id = "c1";
  state.secret_key = "0123456789abcdef";
  cluster::State read;
  ASSERT_TRUE(decode_into(read, cluster_key(), encode_cluster(state)).ok());
  EXPECT_EQ(read.secret_key, state.secret_key);
}

TEST(Store, ServicesComeBackAsTheyWere) {
  cluster::JobSpec replica = full_spec();
  replica.array.reset();
  cluster::Service service;
  service.name = "chat";
  service.serving = {.number = 3,
                     .replica = replica,
                     .bad_ends = 2,
                     .not_before = Instant(1'700'000'001s),
                     .last_end = "it failed"};
  cluster::State state;
  ASSERT_TRUE(decode_into(state, service_key("chat"), encode(service)).ok());
  EXPECT_EQ(state.services.at("chat"), service);
  service.next = service.serving;
  service.next->number = 4;
  service.canary_share = 125;
  service.next_since = Instant(1'700'000'002s);
  service.versions = 4;
  service.replicas_min = 2;
  service.replicas_max = 9;
  service.idle_time = 10min;
  service.target_ttft = 300ms;
  service.wanted = 5;
  service.jobs_from = 17;
  service.made_at = Instant(1'700'000'000s);
  service.changed_at = Instant(1'700'000'003s);
  service.last_change = "because";
  ASSERT_TRUE(decode_into(state, service_key("chat"), encode(service)).ok());
  EXPECT_EQ(state.services.at("chat"), service);
  EXPECT_FALSE(decode_into(state, service_key("chat"), "\xff\xff").ok());
  service.serving.number = 0;
  EXPECT_FALSE(decode_into(state, service_key("chat"), encode(service)).ok());
  // A replica knows of which it is one.
  replica.service = cluster::ServicePart{"chat", 3};
  ASSERT_TRUE(decode_into(state, asked_key(cluster::JobId(17)), encode_asked(replica)).ok());
  EXPECT_EQ(state.asked.at(cluster::JobId(17)), replica);
  const cluster::Secret key{.id = {cluster::SecretId::Of::service, "chat", "engine.key"},
                            .key = "0123456789abcdef",
                            .sealed = "sealed",
                            .bytes = 3,
                            .changed_at = Instant(1'700'000'001s),
                            .changed_by = ""};
  ASSERT_TRUE(decode_into(state, secret_key(key.id), encode(key)).ok());
  EXPECT_EQ(state.secrets.at(key.id), key);
}

// Or its time limit would be that of a job that does not start.
TEST(Store, AJobThatRanUnderAnOlderTuttiRuns) {
  cluster::State state;
  cluster::Job job = full_job();
  job.running_at = {};
  ASSERT_TRUE(decode_into(state, asked_key(cluster::JobId(40)), encode_asked(job.spec)).ok());
  ASSERT_TRUE(decode_into(state, job_key(job.id), encode(job)).ok());
  EXPECT_EQ(state.jobs.at(job.id).running_at, job.started_at);
}

TEST(Store, TheFabricComesBackAsItWas) {
  cluster::State state;
  ASSERT_TRUE(decode_into(state, fabric_key(), encode(three_links())).ok());
  EXPECT_EQ(*state.fabric, three_links());
  cluster::Fabric broken = three_links();
  broken.begin()->second.latency = {};
  EXPECT_FALSE(decode_into(state, fabric_key(), encode(broken)).ok());
  EXPECT_FALSE(decode_into(state, fabric_key(), "\xff\xff").ok());
  EXPECT_EQ(*state.fabric, three_links());
}

TEST(Store, KeysSortAsIds) { EXPECT_LT(job_key(cluster::JobId(9)), job_key(cluster::JobId(10))); }

// A change of state writes little, and what the elements of an array share is read once.
TEST(Store, WhatWasAskedForIsStoredApartAndOnceForAnArray) {
  cluster::Job first = full_job();
  first.spec.command = {"bash", std::string(1 << 20, 'x')};
  first.id = cluster::JobId(40);
  cluster::Job second = first;
  second.id = cluster::JobId(41);
  second.spec.array->index = 3;
  EXPECT_EQ(cluster::asked_with(first), cluster::asked_with(second));
  EXPECT_LT(encode(second).size(), 1'000U);
  EXPECT_LT(asked_key(cluster::JobId(~std::uint64_t{0})), job_key(cluster::JobId(1)));
  cluster::State state;
  ASSERT_TRUE(decode_into(state, asked_key(first.id), encode_asked(first.spec)).ok());
  for (const auto& job : {first, second}) {
    ASSERT_TRUE(decode_into(state, job_key(job.id), encode(job)).ok());
    EXPECT_EQ(state.jobs.at(job.id), job);
  }
  EXPECT_EQ(&state.jobs.at(first.id).spec.command.all(), &state.jobs.at(second.id).spec.command.all());
  cluster::State empty;
  EXPECT_FALSE(decode_into(empty, job_key(first.id), encode(first)).ok()) << "nobody has asked for it";
}

TEST(Store, DamageIsNoticed) {
  cluster::State state;
  EXPECT_FALSE(decode_into(state, "asked/1", "\xff\xff").ok());
  EXPECT_FALSE(decode_into(state, "asked/x", encode_asked(full_spec())).ok());
  EXPECT_FALSE(decode_into(state, "job/1", "\xff\xff").ok());
  EXPECT_FALSE(decode_into(state, "planet/earth", "").ok());
}

TEST(Objects, AHundredThousandRanksAreStoredInAFewKilobytes) {
  cluster::Job job = full_job();
  job.places.clear();
  for (int rank = 0; rank < 100'000; ++rank) job.places.push_back({"node" + std::to_string(rank / 50), {}});
  job.ranks.assign(job.places.size(), {});
  job.ranks[77] = {cluster::RankState::exited, 3, "because"};
  const std::string bytes = encode(job);
  EXPECT_LT(bytes.size(), 50'000U);
  cluster::State state;
  ASSERT_TRUE(decode_into(state, asked_key(cluster::JobId(40)), encode_asked(job.spec)).ok());
  ASSERT_TRUE(decode_into(state, job_key(job.id), bytes).ok());
  EXPECT_EQ(state.jobs.at(job.id), job);
}

}  // namespace
}  // namespace tutti::wire
