#include "gate/gateway/gateway.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "gate/gateway/passage.hpp"
#include "gate/gateway/stub_test.hpp"

namespace tutti::gate {
namespace {

TEST_F(GatewayTest, AnAnswerComesBackAsItIs) {
  Stub stub;
  stub.then(Stub::answer(200, R"({"id":"a"})"));
  begin({&stub});
  const auto answer = ask(whole);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"id":"a"})");
  EXPECT_EQ(stub.bodies(), std::vector{whole});
  EXPECT_NE(get("/v1/models").body.find("\"id\":\"m\""), std::string::npos);
  EXPECT_EQ(get("/v1/models/m").status, 200);
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(GatewayTest, WhatIsWrongIsToldByWhoeverAnswers) {
  Stub stub;
  stub.then(Stub::answer(400, R"({"error":{"message":"temperature: must be"}})"));
  begin({&stub});
  EXPECT_EQ(ask(R"({"model":"m","temperature":"x"})").status, 400);
  EXPECT_EQ(ask("{").status, 400);
  const auto unknown = ask(R"({"model":"none","prompt":"x"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("model_not_found"), std::string::npos) << unknown.body;
  EXPECT_EQ(get("/v1/nothing").status, 404);
}

TEST_F(GatewayTest, EachModelIsAskedWhereItIs) {
  Stub one({"one", "both"});
  Stub two({"two", "both"});
  one.then(Stub::answer(200, "1"));
  two.then(Stub::answer(200, "2"));
  begin({&one, &two});
  for (int times = 0; times < 5; ++times) {
    EXPECT_EQ(ask(R"({"model":"one"})").body, "1");
    EXPECT_EQ(ask(R"({"model":"two"})").body, "2");
  }
  std::set<std::string> answers;
  for (int times = 0; times < 4; ++times) answers.insert(ask(R"({"model":"both"})").body);
  EXPECT_EQ(answers.size(), 2U) << "they take turns";
}

TEST_F(GatewayTest, OneThatHasGoneCostsNoRequest) {
  Stub stays;
  stays.then(Stub::answer(200, "ok"));
  auto goes = std::make_unique<Stub>();
  goes->then(Stub::answer(200, "ok"));
  begin({&stays, goes.get()});
  goes.reset();
  for (int times = 0; times < 20; ++times) EXPECT_EQ(ask(whole).body, "ok");
}

TEST_F(GatewayTest, OneThatFreezesKeepsNothing) {
  Stub stays;
  Stub freezes;
  stays.then(Stub::answer(200, "ok"));
  freezes.then([](const auto&) { FAIL() << "it is frozen"; });
  GatewaySettings settings;
  settings.looking = {.every = 20ms, .again_after = 20ms, .time_max = 200ms};
  begin({&stays, &freezes}, std::move(settings));
  freezes.freeze();
  // One of two is asked of it, whoever notices first that nothing comes.
  std::vector<std::future<net::Response>> answers;
  for (int count = 0; count < 4; ++count)
    answers.push_back(std::async(std::launch::async, [&] { return ask(whole); }));
  for (auto& answer : answers) EXPECT_EQ(answer.get().body, "ok");
}

TEST_F(GatewayTest, OneThatDiesOfAWholeAnswerIsFollowedByAnother) {
  Stub dies;
  Stub lives;
  const auto die = [](const auto& exchange) { exchange->stream([] {})->cut(); };
  dies.then(die);
  lives.then(Stub::answer(200, "ok"));
  begin({&dies, &lives});
  for (int times = 0; times < 4; ++times) EXPECT_EQ(ask(whole).body, "ok");
  EXPECT_GE(dies.bodies().size(), 1U);
}

TEST_F(GatewayTest, WhoIsFullIsPassedByAndWhereAllAreItIsSaid) {
  Stub full;
  Stub free;
  full.then(Stub::answer(429, "{\"error\":{}}", 7));
  free.then(Stub::answer(200, "ok"));
  free.then(Stub::answer(200, "ok"));
  free.then(Stub::answer(200, "ok"));
  free.then(Stub::answer(200, "ok"));
  free.then(Stub::answer(429, "{\"error\":{}}", 7));
  begin({&full, &free});
  for (int times = 0; times < 4; ++times) EXPECT_EQ(ask(whole).body, "ok");
  auto asks = client();
  const auto refused = asks.request("POST", "/v1/completions", whole);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(asks.retry_after_seconds(), 7);
}

TEST_F(GatewayTest, AStreamGoesOnElsewhereAndIsOne) {
  Stub first;
  Stub second;
  // Whoever is asked first breaks off in the middle of an event.
  const auto breaks =
      Stub::stream(tokens(" 1 2") + data("a") + tokens(" 3") + data("b").substr(0, 20), false);
  const auto goes_on = Stub::stream(tokens(" 3") + data("b") + tokens("") + finish + done);
  std::atomic<int> asked = 0;
  for (Stub* stub : {&first, &second})
    stub->then([&](const auto& exchange) { ++asked == 1 ? breaks(exchange) : goes_on(exchange); });
  begin({&first, &second});
  const auto answer = ask(streamed);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, data("a") + data("b") + finish + done);
  EXPECT_EQ(asked, 2);
  auto bodies = first.bodies();
  for (const std::string& body : second.bodies()) bodies.push_back(body);
  std::ranges::sort(bodies, {}, &std::string::size);
  EXPECT_EQ(bodies[0], streamed);
  EXPECT_EQ(bodies[1], R"({"tutti_resume":{"created":5,"id":"cmpl-1","tokens":[1,2]},)" + streamed.substr(1));
  EXPECT_EQ(metric("tutti_gateway_streams_continued_total"), "1");
}

TEST_F(GatewayTest, AStreamOfOneThatIsKilledGoesOnWhereHeIsStartedAgain) {
  auto first = std::make_unique<Stub>();
  std::promise<std::shared_ptr<net::Stream>> begun;
  first->then([&](const auto& exchange) {
    auto out = exchange->stream([] {});
    out->write(tokens(" 1") + data("a"));
    begun.set_value(std::move(out));
  });
  const std::uint16_t port = first->port();
  begin({first.get()});
  auto answer = std::async(std::launch::async, [&] { return ask(streamed); });
  auto out = begun.get_future().get();
  while (metric("tutti_gateway_first_byte_seconds_count") != "1") std::this_thread::yield();
  first->kill();
  out.reset();
  first.reset();
  Stub again({"m"}, port);
  again.then(Stub::stream(tokens(" 2") + data("b") + finish + done));
  EXPECT_EQ(answer.get().body, data("a") + data("b") + finish + done);
}

TEST_F(GatewayTest, WhatNobodyCanGoOnWithEndsWithAWord) {
  Stub stub;
  stub.then(Stub::stream(data("a"), false));
  begin({&stub});
  const auto answer = ask(streamed);
  EXPECT_TRUE(answer.body.starts_with(data("a"))) << answer.body;
  EXPECT_NE(answer.body.find("\"error\""), std::string::npos) << answer.body;
  EXPECT_TRUE(answer.body.ends_with(done));
  EXPECT_EQ(metric("tutti_gateway_streams_broken_total"), "1");
}

TEST_F(GatewayTest, ARequestThatEnginesDieOfIsGivenUp) {
  Stub one;
  Stub two;
  for (Stub* stub : {&one, &two}) stub->then([](const auto& exchange) { exchange->stream([] {})->cut(); });
  begin({&one, &two});
  const auto answer = ask(streamed);
  EXPECT_EQ(answer.status, 502);
  EXPECT_EQ(one.bodies().size() + two.bodies().size(), static_cast<std::size_t>(deaths_max));
}

TEST_F(GatewayTest, WhoIsAboutToStopIsFollowedWithoutAWord) {
  Stub drains;
  Stub stays;
  const std::string stops = "data: {\"error\":{\"message\":\"x\",\"type\":\"overloaded_error\"}}\n\n";
  std::atomic<int> asked = 0;
  for (Stub* stub : {&drains, &stays})
    stub->then([&](const auto& exchange) {
      (++asked == 1 ? Stub::stream(tokens(" 1") + data("a") + stops + done)
                    : Stub::stream(tokens(" 2") + data("b") + finish + done))(exchange);
    });
  begin({&drains, &stays});
  EXPECT_EQ(ask(streamed).body, data("a") + data("b") + finish + done);
}

TEST_F(GatewayTest, WhoComesBeforeAnybodyCanBeAskedWaits) {
  std::uint16_t port = 0;
  { port = Stub().port(); }
  GatewaySettings settings;
  settings.backends.push_back({{.host = "127.0.0.1", .port = port, .who = "backend"}, ""});
  begin(std::move(settings), 0);
  EXPECT_EQ(get("/health").status, 503);
  auto answer = std::async(std::launch::async, [&] { return ask(whole); });
  while (metric("tutti_gateway_requests_waiting") != "1") std::this_thread::yield();
  Stub stub({"m"}, port);
  stub.then(Stub::answer(200, "ok"));
  EXPECT_EQ(answer.get().body, "ok");
}

TEST_F(GatewayTest, NobodyWaitsForEver) {
  std::uint16_t port = 0;
  { port = Stub().port(); }
  GatewaySettings settings;
  settings.wait_time_max = 50ms;
  settings.backends.push_back({{.host = "127.0.0.1", .port = port, .who = "backend"}, ""});
  begin(std::move(settings), 0);
  auto asks = client();
  const auto answer = asks.request("POST", "/v1/completions", whole);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_GT(asks.retry_after_seconds(), 0);
}

TEST_F(GatewayTest, WhoeverLeavesTakesHisRequestAlong) {
  Stub stub;
  std::promise<void> left;
  stub.then([&](const auto& exchange) { exchange->when_over([&] { left.set_value(); }); });
  begin({&stub});
  {
    auto asks = client();
    asks.give_up_when([&] { return !stub.bodies().empty(); });
    EXPECT_FALSE(asks.request("POST", "/v1/completions", whole));
  }
  left.get_future().wait();
  while (metric("tutti_gateway_requests_unfinished") != "0") std::this_thread::yield();
}

TEST_F(GatewayTest, ProgramsAreFoundByAsking) {
  Stub other(std::vector<std::string>{});
  Stub has(std::vector<std::string>{});
  other.then(Stub::answer(404, R"({"error":"no"})"));
  has.then(Stub::answer(200, "{}"));
  begin({&other, &has});
  for (int times = 0; times < 4; ++times)
    EXPECT_EQ(ask("{\"inputs\":[]}", "/v2/models/a%2Fb/infer").status, 200);
  EXPECT_EQ(get("/v2/models/x").status, 200);
}

TEST_F(GatewayTest, AKeyIsAskedForAndAnotherOneIsShown) {
  Stub stub;
  std::promise<std::string> shown;
  stub.then([&](const auto& exchange) {
    shown.set_value(exchange->request().bearer);
    exchange->answer({.body = "ok"});
  });
  GatewaySettings settings;
  settings.key = "key-of-the-gateway";
  settings.backends.push_back({{.host = "127.0.0.1", .port = stub.port(), .who = "backend"}, "key-behind"});
  begin(std::move(settings), 1);
  const auto refused = client().request("POST", "/v1/completions", whole);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 401);
  const auto answer = client("key-of-the-gateway").request("POST", "/v1/completions", whole);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "ok");
  EXPECT_EQ(shown.get_future().get(), "key-behind");
}

TEST_F(GatewayTest, ItDrains) {
  Stub stub;
  std::promise<std::shared_ptr<net::Exchange>> asked;
  stub.then([&](const auto& exchange) { asked.set_value(exchange); });
  begin({&stub});
  auto answer = std::async(std::launch::async, [&] { return ask(whole); });
  const auto exchange = asked.get_future().get();
  gateway_->drain();
  while (get("/health").status != 503) std::this_thread::yield();
  exchange->answer({.body = "last"});
  EXPECT_EQ(answer.get().body, "last");
  thread_.join();
}

}  // namespace
}  // namespace tutti::gate
