#include "gate/route/route.hpp"

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "gate/route/tallies.hpp"

namespace tutti::gate {
namespace {

RouteList read(std::string_view body, std::string_view known = "") {
  auto routes = read_routes(body, known);
  EXPECT_TRUE(routes) << (routes ? "" : routes.error().text());
  return routes ? *routes : RouteList{};
}

TEST(Route, ServicesAreReadWithTheirReplicas) {
  const RouteList routes = read(R"({"revision":"12","services":[
      {"name":"chat","version":3,"next_version":4,"canary_share":0.1,"may_wake":true,"key":"k",
       "replicas":[{"job":"7","attempt":1,"version":3,"url":"http://10.0.0.1:4000"},
                   {"job":8,"version":"4","url":"http://10.0.0.2:4000"}]},
      {"name":"sleeps","version":1,"replicas":[]}]})");
  EXPECT_EQ(routes.revision, "12");
  ASSERT_TRUE(routes.services);
  ASSERT_EQ(routes.services->size(), 2U);
  const RouteService& chat = routes.services->front();
  EXPECT_EQ(chat.name, "chat");
  EXPECT_EQ(chat.version, 3);
  EXPECT_EQ(chat.next_version, 4);
  EXPECT_EQ(chat.canary_share, 100);
  EXPECT_EQ(chat.key, "k");
  ASSERT_EQ(chat.replicas.size(), 2U);
  EXPECT_EQ(chat.replicas[0], (RouteReplica{"7.1", 3, "http://10.0.0.1:4000"}));
  EXPECT_EQ(chat.replicas[1], (RouteReplica{"8.0", 4, "http://10.0.0.2:4000"}));
  EXPECT_TRUE(routes.services->back().replicas.empty());
}

TEST(Route, WithoutAListTheyAreAsTheyWereOrThereAreNone) {
  EXPECT_FALSE(read(R"({"revision":"12"})", "12").services);
  const RouteList others = read(R"({"revision":"13"})", "12");
  ASSERT_TRUE(others.services);
  EXPECT_TRUE(others.services->empty());
  EXPECT_TRUE(read("{}").services);
  EXPECT_EQ(read(R"({"revision":12})").revision, "12");
}

TEST(Route, WhatIsNoListOfServicesIsRefused) {
  for (const char* const body : {"", "[]", "12", "{\"services\":[{}]}", "{\"services\":[5]}", "<html>"})
    EXPECT_FALSE(read_routes(body, "")) << body;
  std::string many = R"({"revision":"1","services":[{"name":"a","replicas":[{})";
  for (std::size_t at = 0; at < replicas_max; ++at) many += ",{}";
  EXPECT_FALSE(read_routes(many + "]}]}", ""));
}

TEST(Route, WhatIsToldIsJson) {
  Told told{.service = "chat",
            .version = 3,
            .tally = {.requests = 10, .failures = 1},
            .waiting = 2,
            .running = 4,
            .cache_used = 0.25};
  const auto quiet = json::parse(write_told("g1", "http://h:1", std::span(&told, 1)));
  ASSERT_TRUE(quiet);
  EXPECT_EQ(*quiet->find("gateway"), "g1");
  EXPECT_EQ(*quiet->find("url"), "http://h:1");
  const json::Value& service = quiet->find("services")->list()->front();
  EXPECT_EQ(*service.find("name"), "chat");
  EXPECT_EQ(service.find("version")->whole(), 3);
  EXPECT_EQ(service.find("requests")->whole(), 10);
  EXPECT_EQ(service.find("failures")->whole(), 1);
  EXPECT_EQ(service.find("waiting")->whole(), 2);
  EXPECT_EQ(service.find("running")->whole(), 4);
  EXPECT_EQ(service.find("cache_used")->number(), 0.25);
  EXPECT_EQ(service.find("ttft_ms"), nullptr);
  told.tally.first_tokens.back() = 5;
  const auto heard = json::parse(write_told("g1", "", std::span(&told, 1)));
  ASSERT_TRUE(heard);
  const auto* const times = heard->find("services")->list()->front().find("ttft_ms")->list();
  ASSERT_EQ(times->size(), 40U);
  EXPECT_EQ(times->back().whole(), 5);
}

const Tallies::Key key{"chat", 3};

TEST(Tallies, AreCountedForEachVersionUntilTheServiceIsNoMore) {
  Tallies tallies;
  tallies.answered(key, false);
  tallies.answered(key, true);
  tallies.answered({"chat", 4}, false);
  tallies.answered({"chatter", 3}, false);
  EXPECT_EQ(tallies.all().at(key).requests, 2U);
  EXPECT_EQ(tallies.all().at(key).failures, 1U);
  tallies.forget("chat");
  ASSERT_EQ(tallies.all().size(), 1U);
  EXPECT_EQ(tallies.all().begin()->first.first, "chatter");
}

TEST(Tallies, ATimeCountsWhereItIsAtMostTheEnd) {
  Tallies tallies;
  for (const Duration after : {Duration(0), Duration(1ms), Duration(1ms + 1ns), Duration(1'400us),
                               Duration(2ms), Duration(2ms + 1ns), Duration(512s), Duration(1h)})
    tallies.first_token(key, after);
  const FirstTokens counts = tallies.all().at(key).first_tokens;
  EXPECT_EQ(counts[0], 2U);
  EXPECT_EQ(counts[1], 2U);  // at most 1.41 ms
  EXPECT_EQ(counts[2], 1U);
  EXPECT_EQ(counts[3], 1U);
  EXPECT_EQ(counts[38], 1U);  // at most 524 s
  EXPECT_EQ(counts[39], 1U);
}

}  // namespace
}  // namespace tutti::gate
