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

TEST_F(GatewayTest, WhoHasAllThatHeTakesIsAskedWhenHeHasRoom) {
  Stub stub;
  std::promise<std::shared_ptr<net::Exchange>> asked;
  stub.then([&](const auto& exchange) { asked.set_value(exchange); });
  stub.then(Stub::answer(200, "second"));
  GatewaySettings settings;
  settings.backend_requests_max = 1;
  begin({&stub}, std::move(settings));
  auto first = std::async(std::launch::async, [&] { return ask(whole); });
  const auto exchange = asked.get_future().get();
  auto second = std::async(std::launch::async, [&] { return ask(whole); });
  auto third = std::async(std::launch::async, [&] { return ask(whole); });
  while (metric("tutti_gateway_requests_waiting") != "2") std::this_thread::yield();
  EXPECT_EQ(stub.bodies().size(), 1U);
  exchange->answer({.body = "first"});
  EXPECT_EQ(first.get().body, "first");
  EXPECT_EQ(second.get().body, "second");
  EXPECT_EQ(third.get().body, "second");
}

// Says one piece after the other for a while, and then why it ends.
void trickle(const std::shared_ptr<net::Stream>& out, int left) {
  if (left == 0) return out->write(finish + done, [out] { out->close(); });
  out->write(tokens(" 1") + data("a"), [out, left] {
    std::this_thread::sleep_for(20ms);
    trickle(out, left - 1);
  });
}

TEST_F(GatewayTest, AStreamThatMovesIsNotTakenFromWhomNobodyFinds) {
  constexpr int pieces = 100;
  Stub stub;
  Stub other;
  std::atomic<bool> has_begun = false;
  const auto trickles = [&](const auto& exchange) {
    has_begun = true;
    trickle(exchange->stream([] {}), pieces);
  };
  for (Stub* each : {&stub, &other}) each->then(trickles);
  GatewaySettings settings;
  settings.looking = {.every = 20ms, .again_after = 20ms, .time_max = 1s};
  begin({&stub, &other}, std::move(settings));
  auto answer = std::async(std::launch::async, [&] { return ask(streamed); });
  while (!has_begun) std::this_thread::yield();
  for (Stub* each : {&stub, &other}) each->hide();
  std::string expected;
  for (int count = 0; count < pieces; ++count) expected += data("a");
  EXPECT_EQ(answer.get().body, expected + finish + done);
  EXPECT_EQ(stub.bodies().size() + other.bodies().size(), 1U);
  EXPECT_EQ(metric("tutti_gateway_streams_continued_total"), "0");
  const std::lock_guard lock(mutex_);
  EXPECT_GE(std::ranges::count_if(turned_, [](const BackendView& view) { return !view.is_ready; }), 2);
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

TEST_F(GatewayTest, WhoIsNotThereHasNotDiedOfARequest) {
  std::vector<std::unique_ptr<Stub>> gone;
  for (int count = 0; count < deaths_max; ++count) gone.push_back(std::make_unique<Stub>());
  Stub lives;
  lives.then(Stub::answer(200, "ok"));
  GatewaySettings settings;
  settings.looking.every = 1h;
  begin({gone[0].get(), gone[1].get(), gone[2].get(), &lives}, std::move(settings));
  gone.clear();
  EXPECT_EQ(ask(whole).body, "ok");
  EXPECT_EQ(metric("tutti_gateway_asked_again_total"), std::to_string(deaths_max));
}

TEST_F(GatewayTest, TheOnlyOneThatIsNotThereIsWaitedFor) {
  auto first = std::make_unique<Stub>();
  const std::uint16_t port = first->port();
  GatewaySettings settings;
  settings.looking.every = 1h;
  begin({first.get()}, std::move(settings));
  first.reset();
  auto answer = std::async(std::launch::async, [&] { return ask(whole); });
  while (metric("tutti_gateway_asked_again_total") != std::to_string(deaths_max) &&
         answer.wait_for(1ms) != std::future_status::ready) {}
  Stub again({"m"}, port);
  again.then(Stub::answer(200, "ok"));
  EXPECT_EQ(answer.get().body, "ok");
}

TEST_F(GatewayTest, ABegunStreamDoesNotWaitForEver) {
  for (const int status : {429, 503}) {
    Stub stub;
    stub.then(Stub::stream(tokens(" 1") + data("a"), false));
    stub.then(Stub::answer(status, "{}"));
    GatewaySettings settings;
    settings.wait_time_max = 700ms;
    begin({&stub}, std::move(settings));
    const auto answer = ask(streamed);
    EXPECT_TRUE(answer.body.starts_with(data("a"))) << answer.body;
    EXPECT_NE(answer.body.find("\"error\""), std::string::npos) << answer.body;
    EXPECT_GE(stub.bodies().size(), 2U);
    TearDown();
  }
}

TEST_F(GatewayTest, BehindItsLastEventAStreamIsWhole) {
  const std::string all = tokens(" 1") + data("a") + finish + done;
  Stub breaks_off;
  breaks_off.then(Stub::stream(all, false));
  begin({&breaks_off});
  EXPECT_EQ(ask(streamed).body, data("a") + finish + done);
  TearDown();
  Stub hangs;
  std::vector<std::shared_ptr<net::Stream>> held;
  hangs.then([&](const auto& exchange) {
    held.push_back(exchange->stream([] {}));
    held.back()->write(all);
  });
  begin({&hangs});
  EXPECT_EQ(ask(streamed).body, data("a") + finish + done);
  EXPECT_EQ(hangs.bodies().size(), 1U);
  hangs.kill();
}

TEST_F(GatewayTest, WhatIsNoStatusOfAnAnswerIsAFailure) {
  for (const int status : {199, 600}) {
    Stub odd;
    Stub lives;
    odd.then(Stub::answer(status, ""));
    lives.then(Stub::answer(200, "ok"));
    begin({&odd, &lives});
    EXPECT_EQ(ask(whole).body, "ok");
    EXPECT_EQ(odd.bodies().size(), 1U);
    TearDown();
    begin({&odd});
    EXPECT_EQ(ask(whole).status, 502);
    TearDown();
  }
}

TEST_F(GatewayTest, NamesOfModelsStayInTheirLineAndWithinTheirBound) {
  const std::string endless(model_bytes_max + 1, 'x');
  Stub stub({"m", "a\\n127.0.0.1:1 answers: b", endless});
  begin({&stub});
  EXPECT_EQ(get("/v1/models").body.find(endless), std::string::npos);
  EXPECT_EQ(get("/v1/models/m").status, 200);
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(turned_.front().models.size(), 2U);
  EXPECT_EQ(*turned_.front().models.begin(), "a\\x0a127.0.0.1:1 answers: b");
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
