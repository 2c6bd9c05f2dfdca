// `tutti fabric` and what the API takes and gives for it.
#include <signal.h>
#include <unistd.h>

#include <set>

#include <gtest/gtest.h>

#include "net/http/client.hpp"
#include "support/cluster.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::eventually;
using support::has;
using support::PartsCluster;
using support::read_text;
using support::TestCluster;

net::Client client_of(const PartsCluster& cluster, const std::string& token = "admin") {
  return {*net::parse_target(cluster.address()),
          read_text(cluster.data() + "/" + token + ".token").substr(0, 64)};
}

class Fabric : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"n1", "n2", "n3"}) ASSERT_TRUE(cluster_.start_agent(name));
  }

  PartsCluster cluster_{support::with_own_address()};
};

TEST_F(Fabric, EveryPairIsMeasuredAndKept) {
  const auto nothing = cluster_.tutti({"fabric", "--last"});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_TRUE(has(nothing.err, "nothing has been measured yet")) << nothing.err;
  EXPECT_EQ(cluster_.json({"fabric", "--last"}), (json{{"links", json::array()}}));

  const auto done = cluster_.tutti({"fabric", "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.err, "") << "progress is for terminals";
  const json measured = json::parse(done.out);
  std::set<std::string> pairs;
  for (const auto& link : measured["links"]) {
    pairs.insert(link["from"].get<std::string>() + link["to"].get<std::string>());
    EXPECT_GT(link["latency_us"].get<double>(), 0);
    EXPECT_GT(link["bandwidth_gb_s"].get<double>(), 0);
    EXPECT_TRUE(link["slow"].is_boolean());
    EXPECT_EQ(link["measured_at"], measured["links"][0]["measured_at"]);
  }
  EXPECT_EQ(pairs, (std::set<std::string>{"n1n2", "n1n3", "n2n1", "n2n3", "n3n1", "n3n2"}));
  EXPECT_EQ(measured["links"].size(), 6U);
  const json job = cluster_.job("1");
  EXPECT_EQ(job["name"], "fabric");
  EXPECT_EQ(job["nodes"], (json{"n1", "n2", "n3"}));
  EXPECT_EQ(job["gpus"], 0);

  EXPECT_EQ(cluster_.json({"fabric", "--last"}), measured);
  cluster_.kill_controller();
  ASSERT_TRUE(cluster_.start_controller());
  EXPECT_EQ(cluster_.json({"fabric", "--last"}), measured) << "a restart changes nothing";
}

TEST_F(Fabric, NodesThatTakeNoWorkAreLeftOut) {
  ASSERT_EQ(cluster_.tutti({"drain", "n2"}).exit_code, 0);
  const auto two = cluster_.tutti({"fabric"});
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_TRUE(has(two.err, "node n2 is left out: it is drained")) << two.err;
  EXPECT_TRUE(has(two.out, "FROM  TO")) << two.out;
  EXPECT_TRUE(has(two.out, "n1    n3")) << two.out;
  EXPECT_TRUE(has(two.out, "0 of 2 links are slow")) << two.out;
  ASSERT_EQ(cluster_.tutti({"drain", "n1"}).exit_code, 0);
  const auto one = cluster_.tutti({"fabric"});
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_TRUE(has(one.err, "only one node is ready, and a link needs two")) << one.err;
  EXPECT_EQ(cluster_.json({"fabric", "--last"})["links"].size(), 2U) << "what was known stays";
}

// ---- when it does not work out: a dead agent starts no rank, so nothing is ever measured

TEST_F(Fabric, CtrlCCancelsTheJob) {
  cluster_.agent("n2").signal(SIGKILL);
  const auto command = cluster_.start({"fabric"}, "out");
  ASSERT_TRUE(eventually([&] { return !cluster_.json({"jobs"}).empty(); }));
  command->signal(SIGINT);
  EXPECT_EQ(command->wait(), 130);
  EXPECT_TRUE(has(read_text(cluster_.file("out.err")), "fabric, job 1 : cancelled"));
  EXPECT_TRUE(cluster_.becomes("1", "cancelled"));
}

TEST_F(Fabric, ItDoesNotWaitForEver) {
  cluster_.agent("n2").signal(SIGKILL);
  const auto late = cluster_.tutti({"fabric", "--timeout", "1s"});
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_TRUE(has(late.err, "fabric, job 1 : it was not done within 1s")) << late.err;
  EXPECT_TRUE(cluster_.becomes("1", "cancelled"));
}

TEST_F(Fabric, ALostNodeIsNamed) {
  cluster_.agent("n2").signal(SIGKILL);
  const auto lost = cluster_.tutti({"fabric"});
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_TRUE(has(lost.err, "fabric, job 1 : failed: ")) << lost.err;
  EXPECT_TRUE(has(lost.err, "n2")) << lost.err;
  EXPECT_TRUE(has(lost.err, "nothing was stored")) << lost.err;
  EXPECT_TRUE(cluster_.json({"fabric", "--last"})["links"].empty());
}

// ---- the API

TEST_F(Fabric, SlowLinksAreTold) {
  json links = json::array();
  for (const auto& [from, to, bandwidth] :
       {std::tuple("n1", "n2", 4.1), std::tuple("n1", "n3", 10.0), std::tuple("n2", "n3", 10.0)})
    links.push_back({{"from", from}, {"to", to}, {"latency_us", 12.5}, {"bandwidth_gb_s", bandwidth}});
  auto client = client_of(cluster_);
  const auto put = client.request("PUT", "/api/v1/fabric", json{{"links", links}}.dump());
  ASSERT_TRUE(put.ok());
  EXPECT_EQ(put->status, 200) << put->body;
  const auto shown = cluster_.tutti({"fabric", "--last"});
  EXPECT_TRUE(has(shown.out, "n1    n2  12.5 us  4.1   slow: 41% of its neighbours\n")) << shown.out;
  EXPECT_TRUE(has(shown.out, "\n1 of 3 links are slow; measured 20")) << shown.out;
}

TEST_F(Fabric, WhatIsNoMeasurementIsRefused) {
  auto client = client_of(cluster_);
  const auto put = [&](const std::string& body, const std::string& why) {
    const auto response = client.request("PUT", "/api/v1/fabric", body);
    ASSERT_TRUE(response.ok()) << response.error().text();
    EXPECT_EQ(response->status, 400) << body.substr(0, 200);
    EXPECT_TRUE(has(response->body, why)) << response->body;
  };
  const auto one = [&](const std::string& from, const std::string& to, const std::string& numbers) {
    return R"({"links":[{"from":")" + from + R"(","to":")" + to + "\"," + numbers + "}]}";
  };
  const std::string fine = R"("latency_us":1,"bandwidth_gb_s":1)";
  put("", "not the JSON");
  put("[]", "not the JSON");
  put(R"({"links":[{"colour":"red"}]})", "not the JSON");
  put(one("n1", "", fine), "no name for a node");
  put(one("n1", std::string(1000, 'x'), fine), "no name for a node");
  put(one("n1", "n4", fine), "there is no node 'n4'");
  put(one("n1", "n1", fine), "two different nodes");
  put(one("n1", "n2", R"("latency_us":1)"), "above 0");
  put(one("n1", "n2", R"("latency_us":-1,"bandwidth_gb_s":1)"), "above 0");
  put(one("n1", "n2", R"("latency_us":1,"bandwidth_gb_s":"NaN")"), "above 0");
  put(one("n1", "n2", R"("latency_us":"Infinity","bandwidth_gb_s":1)"), "above 0");
  put(one("n1", "n2", R"("latency_us":1,"bandwidth_gb_s":1e308)"), "above 0");
  json many = json::array();
  for (int at = 0; at < 20'000; ++at)
    many.push_back({{"from", "n1"}, {"to", "n2"}, {"latency_us", 1}, {"bandwidth_gb_s", 1}});
  put(json{{"links", many}}.dump(), "at most 16256 links");
  put(json{{"links", json(many.begin(), many.begin() + 2)}}.dump(), "there twice");
  EXPECT_EQ(client.request("POST", "/api/v1/fabric", "{}")->status, 405);
  auto agent = client_of(cluster_, "join");
  EXPECT_EQ(agent.request("PUT", "/api/v1/fabric", "{}")->status, 401);
  EXPECT_EQ(agent.request("GET", "/api/v1/fabric")->status, 401);
  EXPECT_TRUE(cluster_.json({"fabric", "--last"})["links"].empty()) << "none of it was taken";
}

TEST(FabricCommand, WrongUsage) {
  const TestCluster cluster;
  const auto alone = cluster.tutti({"fabric"});
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_TRUE(has(alone.err, "only one node is ready")) << alone.err;
  EXPECT_EQ(cluster.tutti({"fabric", "--timeout", "0s"}).exit_code, 2);
  EXPECT_EQ(cluster.tutti({"fabric", "--lats"}).exit_code, 2);
  EXPECT_EQ(cluster.tutti({"bench", "cloth"}).exit_code, 2);
  EXPECT_TRUE(has(cluster.tutti({"fabric", "--help"}).out, "A link is slow with less than 70%"));
}

}  // namespace
}  // namespace tutti
