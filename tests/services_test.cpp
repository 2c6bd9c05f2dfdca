// Services, from the command line and over the API: replicas that come, are ready, and go; another version;
// and the key that gateways and replicas have in common. The replicas here are shells, which say what engines
// say.
#include <signal.h>

#include <algorithm>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "support/cluster.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::eventually;
using support::has;
using support::read_text;

class Services : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(cluster_.start_agent("n1")); }
  void TearDown() override {
    for (const json& service : cluster_.json({"services"}))
      cluster_.tutti({"serve", "stop", service["name"].get<std::string>()});
    EXPECT_TRUE(eventually([&] { return cluster_.ranks_on("n1").empty(); }));
  }

  json ask(const std::string& method, const std::string& path, const std::string& body = "") const {
    net::Client client(*net::parse_target(cluster_.address()),
                       read_text(cluster_.data() + "/admin.token").substr(0, 64));
    const auto answer = client.request(method, "/api/v1" + path, body);
    EXPECT_TRUE(answer && answer->status == 200)
        << method << " " << path << ": " << (answer ? answer->body : answer.error().text());
    return answer ? json::parse(answer->body, nullptr, false) : json();
  }
  // A replica that says that it is ready, and goes on until it is told to end.
  static json ready_on(int port) {
    return json::array({"bash", "-c",
                        "cat $TUTTI_SECRETS/engine.key; echo; trap 'exit 0' TERM; "
                        "echo ready " +
                            std::to_string(port) + " > $TUTTI_PROGRESS_FILE; while :; do sleep 0.1; done"});
  }
  void serve(const json& command, int least = 1, int most = 1) const {
    const json job{{"command", command}, {"user", "ada"}, {"grace_ms", "5000"}};
    ask("PUT", "/services/chat", json{{"job", job}, {"replicas_min", least}, {"replicas_max", most}}.dump());
  }
  json service() const { return ask("GET", "/services/chat"); }
  bool has_ready(int count) const {
    return eventually([&] { return service().value("replicas_ready", 0) == count; });
  }
  std::string first_replica() const { return service()["replicas"][0]["job"]; }

  support::PartsCluster cluster_;
};

TEST_F(Services, AReplicaIsShownToGatewaysWithTheKeyThatItHasWhenItSaysThatItIsReady) {
  serve(ready_on(31'000));
  ASSERT_TRUE(has_ready(1)) << service();
  const json routes = ask("GET", "/services/routes");
  const json route = routes["services"][0];
  EXPECT_EQ(route["name"], "chat");
  EXPECT_EQ(route["replicas"][0]["job"], first_replica());
  EXPECT_TRUE(has(route["replicas"][0]["url"], ":31000")) << route;
  const std::string key = route["key"];
  EXPECT_EQ(key.size(), 64U);
  EXPECT_TRUE(eventually([&] { return has(cluster_.log(first_replica(), 0), key); }));
  EXPECT_EQ(ask("GET", "/services/routes?known=" + routes["revision"].get<std::string>()).size(), 1U);
  // To nobody else.
  EXPECT_FALSE(has(service().dump() + cluster_.tutti({"secret", "ls"}).out, key));
  EXPECT_FALSE(has(cluster_.tutti({"secret", "ls"}).out, "engine.key"));
  EXPECT_FALSE(has(cluster_.tutti({"audit"}).out, key));
  const std::string shown = cluster_.tutti({"show", "chat"}).out;
  EXPECT_TRUE(has(shown, "service chat  ready")) << shown;
  EXPECT_TRUE(has(shown, first_replica()) && has(shown, ":31000")) << shown;
  EXPECT_TRUE(has(cluster_.tutti({"services"}).out, "1 of 1"));
  EXPECT_TRUE(has(cluster_.tutti({"logs", "chat"}).out, "[" + first_replica() + ".0] " + key));
}

TEST_F(Services, OneThatIsKilledOrCancelledIsReplacedAndTheControllersDeathIsNoEnd) {
  serve(ready_on(31'000), 2, 2);
  ASSERT_TRUE(has_ready(2)) << service();
  const std::string first = first_replica();
  EXPECT_EQ(cluster_.tutti({"cancel", first}).exit_code, 0);
  ASSERT_TRUE(eventually([&] {
    const json now = service();
    return now.value("replicas_ready", 0) == 2 && now["replicas"][0]["job"] != first;
  })) << service();
  const std::string before = first_replica();
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  ASSERT_TRUE(has_ready(2)) << service();
  EXPECT_EQ(first_replica(), before) << "it has run on";
}

TEST_F(Services, AnotherVersionTakesThePlaceAndOneThatDoesNotStartIsRolledBack) {
  serve(ready_on(31'000));
  ASSERT_TRUE(has_ready(1)) << service();
  ask("PUT", "/services/chat", json{{"command", ready_on(31'001)}}.dump());
  ASSERT_TRUE(eventually([&] { return service().value("version", 0) == 2; })) << service();
  EXPECT_TRUE(eventually([&] {
    const json route = ask("GET", "/services/routes")["services"][0];
    return route["replicas"].size() == 1 && has(route["replicas"][0]["url"], ":31001");
  }));
  ask("PUT", "/services/chat", json{{"command", json::array({"false"})}}.dump());
  ASSERT_TRUE(eventually([&] { return has(service()["last_change"], "version 3 was rolled back"); }))
      << service();
  EXPECT_EQ(service().value("version", 0), 2);
  EXPECT_TRUE(has_ready(1));
}

TEST_F(Services, ARequestThatWaitsAtAGatewayWakesOneThatSleeps) {
  serve(ready_on(31'000), 0, 1);
  ASSERT_TRUE(has_ready(1));
  const auto told = [&](int waiting) {
    const json word{{"name", "chat"}, {"version", 1}, {"waiting", waiting}};
    ask("POST", "/services/told",
        json{{"gateway", "g1"}, {"url", "http://g:1"}, {"services", json::array({word})}}.dump());
  };
  ask("PUT", "/services/chat", json{{"command", ready_on(31'000)}, {"idle_s", 0.1}}.dump());
  ASSERT_TRUE(eventually([&] {
    told(0);
    return service()["state"] == "asleep";
  })) << service();
  EXPECT_EQ(ask("GET", "/gateways")["gateways"][0]["url"], "http://g:1");
  EXPECT_EQ(ask("GET", "/services/routes")["services"][0]["may_wake"], true);
  told(1);
  EXPECT_TRUE(has_ready(1)) << service();
}

TEST_F(Services, WhatIsWrongIsSaid) {
  for (const auto& [words, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"serve", "no/such/folder"}, "there is no model here"},
           {{"serve", "stop"}, "which service?"},
           {{"serve", "stop", "none"}, "there is no service 'none'"},
           {{"serve", "update", "none"}, "which model"},
           {{"serve", "promote", "none"}, "there is no service 'none'"},
           {{"serve", "scale", "none"}, "how many?"},
           {{"serve", "/model", "--replicas", "4:1"}, "no number of replicas"},
           {{"serve", "/model", "--canary", "10%"}, "--canary is for"},
           {{"serve", "/model", "--name", "a/b"}, "no name of a service"},
           {{"serve", "/model", "word"}, "a word too many"},
           {{"show", "none"}, "there is no service 'none'"},
           {{"logs", "none"}, "there is no service 'none'"}}) {
    const auto refused = cluster_.tutti(words);
    EXPECT_NE(refused.exit_code, 0) << words[1];
    EXPECT_TRUE(has(refused.err, said)) << refused.err;
  }
}

}  // namespace
}  // namespace tutti
