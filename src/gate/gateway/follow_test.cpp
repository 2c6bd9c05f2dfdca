// A gateway before services: who is asked follows the controller, and the controller hears what becomes of
// it.
#include "gate/gateway/follow.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <numeric>
#include <set>

#include "base/clock/clock.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "gate/gateway/stub_test.hpp"
#include "net/pki/pki.hpp"

namespace tutti::gate {
namespace {

constexpr auto patience = 30s;

// Says of services what a test tells it, and keeps what it is told.
class Controller {
 public:
  explicit Controller(std::uint16_t port = 0) {
    auto listening = net::Server::listen(
        loop_, {.port = port}, [this](const std::shared_ptr<net::Exchange>& exchange) { handle(exchange); });
    EXPECT_TRUE(listening) << (listening ? "" : listening.error().text());
    server_ = std::move(*listening);
    port_ = server_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Controller() { kill(); }
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  void kill() {
    if (!thread_.joinable()) return;
    loop_.stop();
    thread_.join();
    server_.reset();
  }
  std::uint16_t port() const { return port_; }

  // What it says from now on, as JSON of a list of services; returns when the gateway has heard it.
  void say(const std::string& services) {
    std::unique_lock lock(mutex_);
    services_ = services;
    const std::uint64_t wanted = ++revision_;
    EXPECT_TRUE(changed_.wait_for(lock, patience, [&] { return known_ >= wanted; }));
  }
  // The same while nobody asks yet, or from within its own answers.
  void will_say(const std::string& services) {
    const std::lock_guard lock(mutex_);
    services_ = services;
    ++revision_;
  }
  // Waits for a word for which this holds.
  json::Value hear(const std::function<bool(const json::Value&)>& wanted) {
    std::unique_lock lock(mutex_);
    for (std::size_t at = 0;; ++at) {
      if (!changed_.wait_for(lock, patience, [&] { return words_.size() > at; })) {
        ADD_FAILURE() << "it was not told";
        return {};
      }
      if (wanted(words_[at])) return words_[at];
    }
  }
  std::string token() const {
    const std::lock_guard lock(mutex_);
    return token_;
  }
  // Runs on each word, before it is answered.
  std::function<void(const json::Value&)> on_word;

 private:
  void handle(const std::shared_ptr<net::Exchange>& exchange) {
    const net::Request& request = exchange->request();
    if (request.path == "/api/v1/services/told") {
      const auto word = json::parse(request.body);
      EXPECT_TRUE(word) << request.body;
      if (word && on_word) on_word(*word);
      {
        const std::lock_guard lock(mutex_);
        if (word) words_.push_back(*word);
      }
      changed_.notify_all();
      return exchange->answer({.body = "{}"});
    }
    EXPECT_EQ(request.path, "/api/v1/services/routes");
    std::string body;
    {
      const std::lock_guard lock(mutex_);
      token_ = request.bearer;
      const auto known = request.query.find("known");
      const std::string revision = "x-" + std::to_string(revision_);
      const bool is_known = known != request.query.end() && known->second == revision;
      // Who asks again has taken what he was told.
      if (is_known) known_ = revision_;
      body = "{\"revision\":\"" + revision + "\"" + (is_known ? "" : ",\"services\":" + services_) + "}";
    }
    changed_.notify_all();
    exchange->answer({.body = body});
  }

  net::Loop loop_;
  std::unique_ptr<net::Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string services_ = "[]";
  std::uint64_t revision_ = 1;
  std::uint64_t known_ = 0;
  std::string token_;
  std::vector<json::Value> words_;
};

struct Version {
  std::int64_t number = 1;
  std::vector<const Stub*> replicas;
};

// As the controller says it.
std::string service(const std::string& name, std::int64_t serving, const std::vector<Version>& versions,
                    std::int64_t next = 0, const std::string& share = "0") {
  std::string replicas;
  for (const Version& version : versions) {
    for (const Stub* stub : version.replicas)
      replicas += (replicas.empty() ? "" : ",") + std::string("{\"job\":\"") + std::to_string(stub->port()) +
                  "\",\"attempt\":0,\"version\":" + std::to_string(version.number) + ",\"url\":\"" +
                  stub->url() + "\"}";
  }
  return "{\"name\":\"" + name + "\",\"version\":" + std::to_string(serving) +
         ",\"next_version\":" + std::to_string(next) + ",\"canary_share\":" + share +
         ",\"key\":\"key-of-replicas\",\"replicas\":[" + replicas + "]}";
}

// Of a word: the entry of that version, or null.
const json::Value* entry_of(const json::Value& word, std::int64_t version) {
  const json::Value* const services = word.find("services");
  if (services == nullptr || services->list() == nullptr) return nullptr;
  for (const json::Value& each : *services->list()) {
    if (each.find("version")->whole() == version) return &each;
  }
  return nullptr;
}
std::int64_t number_in(const json::Value& word, std::int64_t version, const char* name) {
  const json::Value* const entry = entry_of(word, version);
  return entry == nullptr ? 0 : entry->find(name)->whole().value_or(-1);
}

class FollowingTest : public GatewayTest {
 protected:
  // A gateway that follows the controller, once it knows what that says.
  void follow(const std::string& services, Duration tell_every = 20ms) {
    controller_.will_say(services);
    GatewaySettings settings;
    settings.looking = {.every = 20ms, .again_after = 20ms, .time_max = 5s};
    settings.wait_time_max = 60s;
    settings.controller.emplace();
    settings.controller->target = {.host = "127.0.0.1", .port = controller_.port()};
    settings.controller->token = "token-of-the-gateway";
    settings.controller->ask_every = 10ms;
    settings.controller->hurried_every = 5ms;
    settings.controller->tell_every = tell_every;
    begin(std::move(settings), 0);
    controller_.say(services);
  }
  // So many of them can be asked now.
  void wait_for_ready(std::size_t count) const {
    const std::string mark = "\"} 1\n";
    for (;;) {
      const std::string text = get("/metrics").body;
      std::size_t ready = 0;
      for (auto at = text.find("backend_ready{"); at != std::string::npos;
           at = text.find("backend_ready{", at + 1)) {
        const auto end = text.find('\n', at);
        if (text.substr(end - 4, 5) == mark) ++ready;
      }
      if (ready == count) return;
      std::this_thread::yield();
    }
  }

  Controller controller_;
};

const std::string chat = R"({"model":"chat","prompt":"x"})";
const std::string streamed_chat = R"({"model":"chat","prompt":"x","stream":true})";

TEST_F(FollowingTest, ReplicasAreAskedAndWhatIsNoServiceIsRefusedAtOnce) {
  Stub stub({"chat", "poet"});
  std::promise<std::string> shown;
  stub.then([&](const auto& exchange) {
    shown.set_value(exchange->request().bearer);
    exchange->answer({.body = "ok"});
  });
  stub.then(Stub::answer(200, "poem"));
  stub.then(Stub::answer(200, "any"));
  follow("[" + service("chat", 1, {{1, {&stub}}}) + "]");
  EXPECT_EQ(ask(chat).body, "ok");
  EXPECT_EQ(shown.get_future().get(), "key-of-replicas");
  EXPECT_EQ(controller_.token(), "token-of-the-gateway");
  EXPECT_EQ(ask(R"({"model":"poet"})").body, "poem") << "an adapter of the service";
  EXPECT_EQ(ask(R"({"prompt":"x"})").body, "any") << "the only service is meant";
  EXPECT_EQ(ask(R"({"model":"none"})").status, 404);
  EXPECT_EQ(ask("{\"inputs\":[]}", "/v2/models/none/infer").status, 404);
  EXPECT_EQ(ask("{\"inputs\":[]}", "/v2/models/chat/infer").status, 404) << "it is no program";
  controller_.say("[" + service("chat", 1, {{1, {&stub}}}) + "," + service("sleeps", 1, {}) + "]");
  EXPECT_NE(get("/v1/models").body.find("\"id\":\"sleeps\""), std::string::npos);
  EXPECT_EQ(ask(R"({"prompt":"x"})").status, 404) << "several could be meant";
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(FollowingTest, WhoAsksForAServiceThatSleepsWaitsAndTheControllerHearsOfItAtOnce) {
  Stub stub({"chat"});
  stub.then(Stub::answer(200, "awake"));
  controller_.on_word = [&](const json::Value& word) {
    if (number_in(word, 3, "waiting") > 0)
      controller_.will_say("[" + service("chat", 3, {{3, {&stub}}}) + "]");
  };
  // It says nothing of its own accord for as long as this takes.
  follow("[" + service("chat", 3, {}) + "]", 1h);
  std::vector<std::future<net::Response>> answers;
  for (int count = 0; count < 20; ++count)
    answers.push_back(std::async(std::launch::async, [&] { return ask(chat); }));
  for (auto& answer : answers) {
    const net::Response heard = answer.get();
    EXPECT_EQ(heard.status, 200);
    EXPECT_EQ(heard.body, "awake");
  }
}

TEST_F(FollowingTest, WhoWaitsForAServiceThatIsRemovedHearsSo) {
  follow("[" + service("chat", 1, {}) + "]");
  auto answer = std::async(std::launch::async, [&] { return ask(chat); });
  controller_.hear([](const json::Value& word) { return number_in(word, 1, "waiting") == 1; });
  controller_.say("[]");
  EXPECT_EQ(answer.get().status, 404);
}

TEST_F(FollowingTest, OneThatIsNotInTheListAnyMoreFinishesWhatItHasAndGetsNothingNew) {
  Stub goes({"chat"});
  Stub stays({"chat"});
  std::promise<std::shared_ptr<net::Exchange>> asked;
  goes.then([&](const auto& exchange) { asked.set_value(exchange); });
  goes.then([](const auto&) { FAIL() << "it gets nothing new"; });
  stays.then(Stub::answer(200, "new"));
  follow("[" + service("chat", 1, {{1, {&goes}}}) + "]");
  auto answer = std::async(std::launch::async, [&] { return ask(chat); });
  const auto exchange = asked.get_future().get();
  controller_.say("[" + service("chat", 1, {{1, {&stays}}}) + "]");
  for (int times = 0; times < 10; ++times) EXPECT_EQ(ask(chat).body, "new");
  exchange->answer({.body = "old"});
  EXPECT_EQ(answer.get().body, "old");
  // And is forgotten then.
  while (get("/metrics").body.find(std::to_string(goes.port())) != std::string::npos)
    std::this_thread::yield();
}

TEST_F(FollowingTest, WithoutTheControllerWhatIsKnownHolds) {
  Stub first({"chat"});
  auto second = std::make_unique<Stub>(std::vector<std::string>{"chat"});
  for (Stub* stub : {&first, second.get()}) stub->then(Stub::answer(200, "ok"));
  std::promise<void> noted;
  follow("[" + service("chat", 1, {{1, {&first, second.get()}}}) + "]");
  controller_.kill();
  for (int times = 0; times < 10; ++times) EXPECT_EQ(ask(chat).body, "ok");
  second.reset();
  for (int times = 0; times < 10; ++times) EXPECT_EQ(ask(chat).body, "ok");
}

TEST_F(FollowingTest, ACanaryHasItsShareAndStepsInForTheOther) {
  Stub serving({"chat"});
  Stub canary({"chat"});
  serving.then(Stub::answer(200, "1"));
  canary.then(Stub::answer(200, "2"));
  follow("[" + service("chat", 1, {{1, {&serving}}, {2, {&canary}}}, 2, "0.1") + "]");
  wait_for_ready(2);
  for (int times = 0; times < 100; ++times) EXPECT_EQ(ask(chat).status, 200);
  EXPECT_EQ(canary.bodies().size(), 10U);
  // Who is not there is no reason to refuse anybody.
  serving.kill();
  for (int times = 0; times < 10; ++times) EXPECT_EQ(ask(chat).body, "2");
}

TEST_F(FollowingTest, AStreamGoesOnAtTheSameVersionAlone) {
  Stub first({"chat"});
  Stub second({"chat"});
  Stub other({"chat"});
  const auto breaks = Stub::stream(tokens(" 1") + data("a"), false);
  const auto goes_on = Stub::stream(tokens(" 2") + data("b") + finish + done);
  std::atomic<int> asked = 0;
  for (Stub* stub : {&first, &second})
    stub->then([&](const auto& exchange) { ++asked == 1 ? breaks(exchange) : goes_on(exchange); });
  other.then(Stub::answer(200, "whole"));
  // All of them are asked alike, and a request for the canary is for it alone.
  follow("[" + service("chat", 1, {{1, {&first, &second}}, {2, {&other}}}, 2, "0.001") + "]");
  wait_for_ready(3);
  EXPECT_EQ(ask(streamed_chat).body, data("a") + data("b") + finish + done);
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(other.bodies().empty());
}

TEST_F(FollowingTest, AStreamOfAVersionThatIsNoMoreEndsWithAWord) {
  Stub old({"chat"});
  Stub next({"chat"});
  std::promise<std::shared_ptr<net::Stream>> begun;
  old.then([&](const auto& exchange) {
    auto out = exchange->stream([] {});
    out->write(tokens(" 1") + data("a"));
    begun.set_value(std::move(out));
  });
  next.then(Stub::answer(200, "2"));
  follow("[" + service("chat", 1, {{1, {&old}}}) + "]");
  auto answer = std::async(std::launch::async, [&] { return ask(streamed_chat); });
  const auto out = begun.get_future().get();
  while (metric("tutti_gateway_first_byte_seconds_count") != "1") std::this_thread::yield();
  controller_.say("[" + service("chat", 2, {{2, {&next}}}) + "]");
  out->cut();
  const std::string body = answer.get().body;
  EXPECT_TRUE(body.starts_with(data("a"))) << body;
  EXPECT_NE(body.find("\"error\""), std::string::npos) << body;
  EXPECT_EQ(ask(chat).body, "2");
}

TEST_F(FollowingTest, TheControllerHearsWhatBecomesOfRequests) {
  Stub good({"chat"});
  Stub bad({"chat"});
  good.then(Stub::stream(tokens(" 1") + data("a") + finish + done));
  bad.then(Stub::answer(500, "{\"error\":{}}"));
  good.tell_health(R"({"status":"ok","running":3,"waiting":1,"cache_used":0.5})");
  follow("[" + service("chat", 1, {{1, {&good}}, {2, {&bad}}}, 2, "0.5") + "]");
  wait_for_ready(2);
  for (int times = 0; times < 10; ++times) {
    const int status = ask(streamed_chat).status;
    EXPECT_TRUE(status == 200 || status == 500) << status;
  }
  const json::Value word = controller_.hear([](const json::Value& said) {
    return number_in(said, 1, "requests") + number_in(said, 2, "requests") == 10 &&
           entry_of(said, 1)->find("cache_used")->number() == 0.5;
  });
  EXPECT_EQ(number_in(word, 1, "requests"), 5);
  EXPECT_EQ(number_in(word, 1, "failures"), 0);
  EXPECT_EQ(number_in(word, 2, "failures"), 5);
  const json::Value* const times = entry_of(word, 1)->find("ttft_ms");
  ASSERT_NE(times, nullptr);
  std::int64_t sum = 0;
  for (const json::Value& count : *times->list()) sum += count.whole().value_or(0);
  EXPECT_EQ(sum, 5);
  EXPECT_EQ(entry_of(word, 2)->find("ttft_ms"), nullptr);
  EXPECT_EQ(*word.find("url"), "http://127.0.0.1:" + std::to_string(gateway_->port()));
  EXPECT_EQ(word.find("gateway")->text()->size(), 16U);
}

TEST_F(FollowingTest, ReplicasOverANetworkAreKnownByTheirKeyAndOthersHearNothing) {
  const auto papers_of = [](const std::string& key) {
    auto papers = pki::server_of_secret(key, "127.0.0.1", now_on_the_wall());
    EXPECT_TRUE(papers);
    return net::ServerIdentity{papers->certificate, papers->key, ""};
  };
  Stub knows({"chat"}, 0, papers_of("key-of-replicas"));
  Stub stranger({"chat"}, 0, papers_of("another-key"));
  knows.then(Stub::answer(200, "ok"));
  stranger.then([](const auto&) { FAIL() << "it does not know the key"; });
  follow("[" + service("chat", 1, {{1, {&knows, &stranger}}}) + "]");
  wait_for_ready(1);
  for (int times = 0; times < 5; ++times) EXPECT_EQ(ask(chat).body, "ok");
}

TEST_F(FollowingTest, WhatIsUnderWayIsToldAsWhatItIs) {
  Stub stub({"chat"});
  std::mutex mutex;
  std::vector<std::shared_ptr<net::Exchange>> held;
  stub.then([&](const auto& exchange) {
    const std::lock_guard lock(mutex);
    held.push_back(exchange);
  });
  // Half of what it has waits there, and half of that is ours.
  stub.tell_health(R"({"running":4,"waiting":4,"cache_used":0})");
  follow("[" + service("chat", 1, {{1, {&stub}}}) + "]");
  wait_for_ready(1);
  std::vector<std::future<net::Response>> answers;
  for (int count = 0; count < 4; ++count)
    answers.push_back(std::async(std::launch::async, [&] { return ask(chat); }));
  controller_.hear([](const json::Value& word) {
    return number_in(word, 1, "running") == 2 && number_in(word, 1, "waiting") == 2;
  });
  {
    const std::lock_guard lock(mutex);
    for (const auto& exchange : held) exchange->answer({.body = "ok"});
  }
  for (auto& answer : answers) EXPECT_EQ(answer.get().body, "ok");
}

}  // namespace
}  // namespace tutti::gate
