// Services over the API: what is asked, and what is shown of them.
#include <gtest/gtest.h>

#include "control/cluster/step.hpp"
#include "control/wire/requests.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ServiceRequests, WhatIsLeftOutStaysAsItIs) {
  const auto serve = decode_serve("chat", R"({"job":{"command":["tutti","engine","m"],"user":"ada"}})");
  ASSERT_TRUE(serve.ok()) << serve.error().text();
  EXPECT_EQ(serve->replica.name, "chat");
  EXPECT_EQ(serve->replica.shape.ranks, 1);
  EXPECT_EQ(serve->replica.user, "ada");
  EXPECT_FALSE(serve->replicas_min || serve->replicas_max || serve->idle_time || serve->target_ttft);
  EXPECT_EQ(serve->canary_share, 0);
  EXPECT_FALSE(serve->only_command);
  const auto all = decode_serve(
      "chat", R"({"command":["x"],"replicas_min":0,"replicas_max":4,"idle_s":1.5,"target_ttft_ms":250,)"
              R"("canary_share":0.125})");
  ASSERT_TRUE(all.ok()) << all.error().text();
  EXPECT_TRUE(all->only_command);
  EXPECT_EQ(all->replica.command.all(), std::vector<std::string>{"x"});
  EXPECT_EQ(all->replica.user, "");
  EXPECT_EQ(all->replicas_min, 0);
  EXPECT_EQ(all->replicas_max, 4);
  EXPECT_EQ(all->idle_time, 1500ms);
  EXPECT_EQ(all->target_ttft, 250ms);
  EXPECT_EQ(all->canary_share, 125);
}

TEST(ServiceRequests, WhatIsNoneIsRefused) {
  for (const char* wrong :
       {"", "{}", "[]", R"({"job":{}})", R"({"job":{"command":["x"]},"command":["y"]})",
        R"({"job":{"command":["x"],"service":{"name":"chat","version":1}}})", R"({"command":["\u0000"]})"})
    EXPECT_FALSE(decode_serve("chat", wrong).ok()) << wrong;
  EXPECT_FALSE(decode_serve("a/b", R"({"command":["x"]})").ok());
  EXPECT_FALSE(decode_serve("routes", R"({"command":["x"]})").ok()) << "a page is called so";
  const auto whole = decode_serve("chat", R"({"command":["x"],"canary_share":1})");
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->canary_share, cluster::share_of_all) << "which no service takes";
  const auto endless = decode_serve("chat", R"({"command":["x"],"idle_s":1e300})");
  ASSERT_TRUE(endless.ok());
  EXPECT_GT(*endless->idle_time, cluster::idle_time_max);
}

TEST(ServiceRequests, WordsOfGatewaysAreBounded) {
  const auto word = decode_told(
      R"({"gateway":"g1","url":"http://g:1","services":[{"name":"chat","version":2,"requests":"12","failures":1,)"
      R"("waiting":3,"running":4,"cache_used":0.5,"ttft_ms":[0,7]}]})");
  ASSERT_TRUE(word.ok()) << word.error().text();
  EXPECT_EQ(word->gateway, "g1");
  ASSERT_EQ(word->services.size(), 1U);
  EXPECT_EQ(word->services.front().requests, 12U);
  EXPECT_EQ(word->services.front().waiting, 3);
  EXPECT_EQ(word->services.front().first_tokens.counts[1], 7U);
  const auto refused = [](const std::string& fields) {
    return !decode_told(R"({"gateway":"g","services":[{"name":"chat","version":1,)" + fields + "}]}").ok();
  };
  EXPECT_FALSE(refused(R"("waiting":1)"));
  EXPECT_TRUE(refused(R"("waiting":-1)"));
  EXPECT_TRUE(refused(R"("running":"9000000000")"));
  EXPECT_TRUE(refused(R"("cache_used":1.5)"));
  EXPECT_TRUE(refused(R"("cache_used":"NaN")"));
  EXPECT_TRUE(refused(R"("requests":-1)"));
  std::string counts = "0";
  for (int at = 0; at < 40; ++at) counts += ",0";
  EXPECT_TRUE(refused(R"("ttft_ms":[)" + counts + "]"));
  EXPECT_FALSE(decode_told(R"({"gateway":"g","services":[{"name":"chat"}]})").ok()) << "of no version";
}

// A cluster of one node, with a service that has one replica.
struct ServiceViews : testing::Test {
  void SetUp() override {
    cluster::derive(state, now);
    cluster::Hello hello{"a", "", "10.0.0.1", 1, {}, {}};
    hello.inventory.cpus = 16;
    happen(hello);
    cluster::Serve serve;
    serve.name = "chat";
    serve.replica.name = "chat";
    serve.replica.command = {"/bin/tutti", "engine", "/models/m", "--name", "chat", "--replica"};
    serve.key = {.id = {cluster::SecretId::Of::service, "chat", std::string(cluster::engine_key_name)},
                 .key = "k1",
                 .sealed = std::string(64, 's'),
                 .bytes = 32};
    happen(serve);
    happen(cluster::Tend{});
    happen(cluster::Planned{sched::schedule(cluster::snapshot(state, now), now), state.index.generation()});
    ASSERT_EQ(state.holding.size(), 1U);
    replica = *state.holding.begin();
  }
  void happen(const cluster::Event& event) {
    const auto reply = cluster::step(state, now, event).reply;
    ASSERT_TRUE(reply.ok()) << reply.error().text();
  }
  std::string routes(const std::string& known = "") const {
    return routes_json(state, known, [](const cluster::Secret&) { return "opened"; });
  }
  void get_ready() {
    cluster::RankStatus status{cluster::RankState::started};
    happen(cluster::Reported{"a", {replica, 0, 0, status}});
    status.detail = "ready 31000";
    happen(cluster::Reported{"a", {replica, 0, 0, status}});
  }

  cluster::State state;
  Instant now{1000s};
  cluster::JobId replica;
};

TEST_F(ServiceViews, GatewaysAreShownReadyReplicasAloneAndOnlyNews) {
  EXPECT_TRUE(has(routes(), R"("may_wake":true,"key":"opened","replicas":[])")) << routes();
  get_ready();
  const std::string all = routes();
  EXPECT_TRUE(has(all, R"("name":"chat","version":1,"next_version":0,"canary_share":0,"may_wake":false)"))
      << all;
  EXPECT_TRUE(has(all, R"("attempt":0,"version":1,"url":"http://10.0.0.1:31000")")) << all;
  const std::string revision = cluster::routes_revision(state);
  EXPECT_EQ(routes(revision), R"({"revision":")" + revision + R"("})");
  EXPECT_TRUE(has(routes("another"), "replicas"));
}

TEST_F(ServiceViews, PeopleAreShownWhatIsServedAndNoKey) {
  get_ready();
  const std::string list = services_json(state, {});
  EXPECT_TRUE(has(list, R"("name":"chat")") && has(list, R"("model":"/models/m")")) << list;
  EXPECT_TRUE(has(list, R"("replicas_ready":1,"replicas_wanted":1,"replicas_min":1,"replicas_max":1)"))
      << list;
  EXPECT_TRUE(has(services_json(state, {.shows = [](const auto&) { return false; }}), R"("services":[])"));
  const std::string one = service_json(state, state.services.at("chat"));
  EXPECT_TRUE(has(one, R"("state":"ready","node":"a","url":"http://10.0.0.1:31000")")) << one;
  EXPECT_FALSE(has(one, R"("demand")")) << "nobody tells of it";
  EXPECT_FALSE(has(one + list, "opened"));
  EXPECT_FALSE(has(secrets_json(state, {}), "engine.key"));
  happen(cluster::GatewayTold{"g1", "http://g:1", {}});
  EXPECT_TRUE(has(service_json(state, state.services.at("chat")), R"("demand":{"waiting":"0")"));
  EXPECT_EQ(gateways_json(state), R"({"gateways":[{"id":"g1","url":"http://g:1"}]})");
}

}  // namespace
}  // namespace tutti::wire
