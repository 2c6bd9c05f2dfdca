// Large bodies are read beside the loop that hears the agents, one at a time.
#include "control/controller/api.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "base/text.hpp"
#include "control/controller/audit_keeper.hpp"
#include "control/controller/vault.hpp"
#include "control/store/memory/memory_store.hpp"

namespace tutti::controller {
namespace {

class BodyExchange final : public net::Exchange {
 public:
  struct Answer {
    net::Response response;
    std::thread::id thread;
  };
  BodyExchange(const std::string& method, const std::string& path, std::string body,
               const std::string& remote) {
    request_.method = method;
    request_.bearer = "admin";
    request_.remote = remote;
    request_.path = path;
    for (const std::string_view part : split(std::string_view(path).substr(1), '/'))
      request_.parts.emplace_back(part);
    request_.body_bytes = body.size();
    request_.body = std::move(body);
  }

  const net::Request& request() const override { return request_; }
  void when_over(std::function<void()> over) override { leave = std::move(over); }
  void answer(net::Response response) override {
    if (before_answer) before_answer();
    answered_.set_value({std::move(response), std::this_thread::get_id()});
  }
  std::shared_ptr<net::Stream> stream(std::function<void()>) override { return nullptr; }
  void upgrade(std::function<void(std::shared_ptr<net::Socket>)>) override {}

  std::future<Answer> answered() { return answered_.get_future(); }

  std::function<void()> leave;
  std::function<void()> before_answer;

 private:
  net::Request request_;
  std::promise<Answer> answered_;
};

struct ApiTest : testing::Test {
  using Shared = std::shared_ptr<BodyExchange>;

  store::MemoryStore store;
  net::Loop loop;
  Core core{store, [](const driver::Delivery&) {}};
  Hub hub{loop, core};
  Explainer explainer;
  Janitor janitor{core, {.folder = testing::TempDir() + "tutti-api-" + std::to_string(::getpid())}};
  AuditKeeper audit{core, {.folder = testing::TempDir() + "tutti-api-" + std::to_string(::getpid())}};
  Vault vault{core, testing::TempDir() + "tutti-api-" + std::to_string(::getpid())};
  Api api{core,
          hub,
          explainer,
          janitor,
          audit,
          vault,
          {.tokens = {"admin", "join"}, .blob_folder = "", .requests = {.per_second = 1000, .burst = 1000}}};

  static Shared post(const std::string& page, std::string body, const std::string& remote = "10.0.0.1") {
    return std::make_shared<BodyExchange>("POST", "/api/v1/" + page, std::move(body), remote);
  }
  static Shared get(const std::string& page, const std::string& remote = "10.0.0.1") {
    return std::make_shared<BodyExchange>("GET", "/api/v1/" + page, "", remote);
  }
  static std::string large_body() { return "[]" + std::string(small_body_bytes_max, ' '); }

  // Holds up who reads bodies until the gate opens.
  void hold(const std::shared_future<void>& gate) {
    std::latch held(1);
    const Shared first = post("jobs", large_body());
    first->before_answer = [&held, gate] {
      held.count_down();
      gate.wait();
    };
    api.handle(first);
    held.wait();
  }
};

TEST_F(ApiTest, LargeBodiesAreReadBesideTheLoop) {
  for (const auto& [body, beside] :
       {std::pair<std::string, bool>{"[]", false}, std::pair<std::string, bool>{large_body(), true}}) {
    const Shared exchange = post("jobs", body);
    api.handle(exchange);
    const auto answer = exchange->answered().get();
    EXPECT_EQ(answer.response.status, 400);
    EXPECT_EQ(answer.thread != std::this_thread::get_id(), beside);
  }
}

TEST_F(ApiTest, ShortBodiesThatStandForManyJobsAreReadBesideTheLoop) {
  const auto array_of = [](int elements) {
    std::string body = R"({"jobs":[{"command":["x"],"workdir":"/)" + std::string(700, 'w') +
                       R"(","array":{"count":1}}],"ind\u0069ces":[0)";
    for (int index = 1; index < elements; ++index) body += ",0";
    return body + "]}";
  };
  std::string written_out = R"({"jobs":[{})";
  for (int job = 0; job < 9'000; ++job) written_out += ",{}";
  written_out += R"(],"indices":[0]})";
  for (const auto& [body, beside] :
       {std::pair(array_of(10), false), std::pair(array_of(9'000), true), std::pair(written_out, true)}) {
    ASSERT_LT(body.size(), small_body_bytes_max);
    for (const std::string page : {"jobs", "explain"}) {
      const Shared exchange = post(page, body);
      api.handle(exchange);
      const auto answer = exchange->answered().get();
      EXPECT_EQ(answer.response.status, 400) << answer.response.body;
      EXPECT_EQ(answer.thread != std::this_thread::get_id(), beside) << page << " " << body.size();
    }
  }
}

TEST_F(ApiTest, MoreLargeBodiesThanMayWaitAreSentAway) {
  std::promise<void> gate;
  hold(gate.get_future().share());
  std::vector<Shared> waiting;
  for (std::size_t at = 0; at < body_desk.waiting_max; ++at) {
    waiting.push_back(post("jobs", large_body(), "10.0.1." + std::to_string(at)));
    api.handle(waiting.back());
  }
  const Shared more = post("jobs", large_body());
  api.handle(more);
  const auto refused = more->answered().get();
  EXPECT_EQ(refused.response.status, 503);
  EXPECT_GT(refused.response.retry_after_seconds, 0);
  const Shared small = post("jobs", "[]");
  api.handle(small);
  EXPECT_EQ(small->answered().get().response.status, 400) << "small ones do not wait for large ones";
  gate.set_value();
  for (const Shared& one : waiting) EXPECT_EQ(one->answered().get().response.status, 400);
}

TEST_F(ApiTest, LargeBodiesOfOneAddressLeaveRoomForThoseOfOthers) {
  std::promise<void> gate;
  hold(gate.get_future().share());
  std::vector<Shared> waiting;
  std::size_t refused = 0;
  for (std::size_t at = 0; at < body_desk.waiting_max; ++at) {
    const Shared one = post("jobs", large_body());
    bool sent_away = false;
    one->before_answer = [&] { sent_away = true; };
    api.handle(one);
    one->before_answer = nullptr;
    refused += sent_away ? 1 : 0;
    if (!sent_away) waiting.push_back(one);
  }
  EXPECT_GT(refused, 0U);
  waiting.push_back(post("jobs", large_body(), "10.0.0.2"));
  api.handle(waiting.back());
  gate.set_value();
  for (const Shared& one : waiting) EXPECT_EQ(one->answered().get().response.status, 400);
}

// Without memory for it, say: the others are answered all the same.
TEST_F(ApiTest, WhatFailsBesideTheLoopIsAnsweredAndEndsNothingElse) {
  const Shared fails = post("jobs", large_body());
  std::atomic<bool> first = true;
  fails->before_answer = [&first] {
    if (first.exchange(false)) throw std::bad_alloc();
  };
  api.handle(fails);
  const auto refused = fails->answered().get().response;
  EXPECT_EQ(refused.status, 503);
  EXPECT_GT(refused.retry_after_seconds, 0);
  const Shared next = post("jobs", large_body());
  api.handle(next);
  EXPECT_EQ(next->answered().get().response.status, 400);
}

TEST_F(ApiTest, AQuestionOfOneWhoHasGoneIsNotRead) {
  std::promise<void> gate;
  hold(gate.get_future().share());
  const Shared left = post("explain", large_body());
  bool answered = false;
  left->before_answer = [&] { answered = true; };
  api.handle(left);
  ASSERT_NE(left->leave, nullptr);
  left->leave();
  const Shared stays = post("explain", large_body());
  api.handle(stays);
  gate.set_value();
  EXPECT_EQ(stays->answered().get().response.status, 400);
  EXPECT_FALSE(answered);
}

TEST_F(ApiTest, PagesOfThoseWhoHaveGoneAreNotMadeAndTooManyAreSentAway) {
  ASSERT_TRUE(core.start().ok());
  std::promise<void> gate;
  ASSERT_TRUE(core.look("10.0.0.9", [&gate](const auto&, const auto&) { gate.get_future().wait(); }));
  bool answered = false;
  std::vector<Shared> left;
  for (const std::string page : {"status", "jobs", "jobs/1", "nodes", "nodes/a", "queues", "fabric"}) {
    left.push_back(get(page));
    left.back()->before_answer = [&answered] { answered = true; };
    api.handle(left.back());
    ASSERT_NE(left.back()->leave, nullptr) << page;
    left.back()->leave();
  }
  const Shared stays = get("status");
  api.handle(stays);
  while (core.look("10.0.0.1", [](const auto&, const auto&) {})) continue;
  const Shared more = get("status");
  api.handle(more);
  const auto refused = more->answered().get().response;
  EXPECT_EQ(refused.status, 503);
  EXPECT_GT(refused.retry_after_seconds, 0);
  gate.set_value();
  EXPECT_EQ(stays->answered().get().response.status, 200);
  EXPECT_FALSE(answered);
  core.stop();
}

TEST_F(ApiTest, QuestionsThatWaitAreCountedAndTooManyAreSentAway) {
  ASSERT_TRUE(core.start().ok());
  std::promise<void> gate;
  ASSERT_TRUE(core.look("10.0.0.9", [&gate](const auto&, const auto&) { gate.get_future().wait(); }));
  const std::string job = R"({"jobs":[{"command":["true"]}]})";
  std::vector<Shared> waiting;
  for (std::size_t at = 0; at < questions_max; ++at) {
    const std::string address = "10.0.1." + std::to_string(at);
    waiting.push_back(at % 2 == 0 ? get("jobs/1/explain", address) : post("explain", job, address));
    api.handle(waiting.back());
  }
  for (const Shared& more : {get("jobs/1/explain"), post("explain", job)}) {
    bool answered = false;
    more->before_answer = [&answered] { answered = true; };
    api.handle(more);
    more->before_answer = nullptr;
    EXPECT_TRUE(answered);
    if (!answered) continue;
    const auto refused = more->answered().get().response;
    EXPECT_EQ(refused.status, 503);
    EXPECT_GT(refused.retry_after_seconds, 0);
  }
  gate.set_value();
  for (std::size_t at = 0; at < waiting.size(); ++at)
    EXPECT_EQ(waiting[at]->answered().get().response.status, at % 2 == 0 ? 404 : 200);
  core.stop();
}

// Whoever asks again too soon is in the way of those who make room.
TEST_F(ApiTest, WhatCannotBeDoneNowSaysWhenToComeAgain) {
  ASSERT_TRUE(core.start().ok());
  const std::string job = R"({"jobs":[{"command":["true"]}]})";
  store.fail_next(store::CommitResult::Status::unknown, false);
  const Shared not_stored = post("jobs", job);
  api.handle(not_stored);
  const auto refused = not_stored->answered().get().response;
  EXPECT_EQ(refused.status, 503);
  EXPECT_GT(refused.retry_after_seconds, 0);
  std::promise<void> gate;
  ASSERT_TRUE(core.look("10.0.0.9", [&gate](const auto&, const auto&) { gate.get_future().wait(); }));
  while (core.happen(cluster::RemoveQueue{"none"}, nullptr)) continue;
  const Shared one_more = post("jobs", job);
  api.handle(one_more);
  const auto crowded = one_more->answered().get().response;
  gate.set_value();
  EXPECT_EQ(crowded.status, 503);
  EXPECT_GT(crowded.retry_after_seconds, 0);
  EXPECT_NE(crowded.body.find("the controller is overloaded"), std::string::npos) << crowded.body;
  core.stop();
}

// On a disk that can neither be written nor read for a while.
class FailingStore final : public store::Store {
 public:
  Result<std::uint64_t> read(const Each& each) override {
    if (fails) return failed("input/output error");
    return inner_.read(each);
  }
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override {
    if (fails) return {store::CommitResult::Status::unknown, 0, "input/output error"};
    return inner_.commit(revision, writes);
  }

  std::atomic<bool> fails = false;

 private:
  store::MemoryStore inner_;
};

// Or a job would be seen by everybody, and its number given to another one later.
TEST_F(ApiTest, WhatMayNotBeStoredIsShownToNobody) {
  FailingStore disk;
  Core its_core(disk, [](const driver::Delivery&) {});
  ASSERT_TRUE(its_core.start().ok());
  Hub its_hub(loop, its_core);
  Api its_api(
      its_core, its_hub, explainer, janitor, audit, vault,
      {.tokens = {"admin", "join"}, .blob_folder = "", .requests = {.per_second = 1000, .burst = 1000}});
  const auto answer_to = [&](const Shared& exchange) {
    its_api.handle(exchange);
    return exchange->answered().get().response;
  };
  const std::string job = R"({"jobs":[{"command":["true"]}]})";
  const std::string shipped = R"({"jobs":[{"command":["true"],"sync":")" + std::string(64, '0') + R"("}]})";
  disk.fails = true;
  EXPECT_EQ(answer_to(post("jobs", job)).status, 503);
  for (const char* page : {"jobs", "jobs/1", "jobs/1/explain", "nodes", "queues", "fabric", "status"}) {
    const auto refused = answer_to(get(page));
    EXPECT_EQ(refused.status, 503) << page << ": " << refused.body;
    EXPECT_GT(refused.retry_after_seconds, 0) << page;
    EXPECT_NE(refused.body.find("what is stored is not known now"), std::string::npos) << refused.body;
  }
  EXPECT_EQ(answer_to(post("explain", job)).status, 503);
  EXPECT_EQ(answer_to(post("jobs", shipped)).status, 503);
  disk.fails = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  auto seen = answer_to(get("jobs/1"));
  for (; seen.status == 503 && std::chrono::steady_clock::now() < deadline; seen = answer_to(get("jobs/1")))
    std::this_thread::yield();
  EXPECT_EQ(seen.status, 404) << seen.body;
  its_api.stop();
  its_core.stop();
}

TEST_F(ApiTest, WhatIsMeantForAnotherClusterIsNotDone) {
  Core ours(
      store, [](const driver::Delivery&) {}, nullptr, "ours");
  ASSERT_TRUE(ours.start().ok());
  Hub its_hub(loop, ours);
  Api its_api(
      ours, its_hub, explainer, janitor, audit, vault,
      {.tokens = {"admin", "join"}, .blob_folder = "", .requests = {.per_second = 100, .burst = 100}});
  const auto status = [&](const std::string& cluster) {
    net::Request head = post("jobs/1/cancel", "")->request();
    head.bearer = "admin";
    if (!cluster.empty()) head.headers[net::cluster_header] = cluster;
    const auto admission = its_api.admit(head);
    return admission.refusal ? admission.refusal->status : 200;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("ours"), 200);
  EXPECT_EQ(status("theirs"), 412);
  its_api.stop();
  ours.stop();
}

TEST_F(ApiTest, WhatIsNeitherYesNorNoIsRefused) {
  const auto status = [&](const std::string& page, const std::string& name, const std::string& value) {
    net::Request head = post(page, "")->request();
    head.bearer = "admin";
    head.query[name] = value;
    const auto admission = api.admit(head);
    return admission.refusal ? admission.refusal->status : 200;
  };
  for (const char* word : {"1", "true", "0", "false"})
    EXPECT_EQ(status("jobs/1/cancel", "now", word), 200) << word;
  for (const char* word : {"yes", "no", "True", "2", "", " 1"})
    EXPECT_EQ(status("jobs/1/cancel", "now", word), 400) << word;
  EXPECT_EQ(status("jobs/1/release", "array", "yes"), 400);
  EXPECT_EQ(status("jobs/1/cancel", "by", "yes"), 200) << "that is a name";
}

TEST_F(ApiTest, BodiesAreAsLargeAsTheirPageNeeds) {
  const auto status = [&](const std::string& page, std::size_t bytes) {
    net::Request head = post(page, "")->request();
    head.bearer = "admin";
    head.body_bytes = bytes;
    const auto admission = api.admit(head);
    return admission.refusal ? admission.refusal->status : 200;
  };
  EXPECT_EQ(status("jobs", net::body_bytes_max), 200);
  EXPECT_EQ(status("jobs/remove", small_body_bytes_max + 1), 413);
  EXPECT_EQ(status("explain", one_job_body_bytes_max), 200);
  EXPECT_EQ(status("explain", one_job_body_bytes_max + 1), 413);
}

TEST_F(ApiTest, WhereThereIsNoIssuerNobodyLogsIn) {
  for (const Shared& asked : {get("login"), post("login", R"({"id_token":"a.b.c"})")}) {
    api.handle(asked);
    const auto answer = asked->answered().get().response;
    EXPECT_EQ(answer.status, 404);
    EXPECT_NE(answer.body.find("--oidc-issuer"), std::string::npos) << answer.body;
  }
}

TEST_F(ApiTest, LoginsAreJudgedBesideTheLoopAndToldApart) {
  Api its_api(core, hub, explainer, janitor, audit, vault,
              {.tokens = {"admin", "join"},
               .blob_folder = "",
               .requests = {.per_second = 1000, .burst = 1000},
               .login = {.issuer = "http://127.0.0.1:1", .client_id = "us"}});
  const Shared settings = get("login");
  its_api.handle(settings);
  const auto shown = settings->answered().get().response;
  EXPECT_EQ(shown.status, 200);
  EXPECT_NE(shown.body.find(R"("client_id":"us")"), std::string::npos) << shown.body;
  const auto answer_to = [&](const std::string& token) {
    const Shared exchange = post("login", R"({"id_token":")" + token + R"("})");
    its_api.handle(exchange);
    return exchange->answered().get();
  };
  const auto wrong = answer_to("a.b.c");
  EXPECT_EQ(wrong.response.status, 401) << wrong.response.body;
  EXPECT_NE(wrong.thread, std::this_thread::get_id());
  const auto unknown = answer_to("eyJhbGciOiJFUzI1NiJ9.e30.");
  EXPECT_EQ(unknown.response.status, 503) << unknown.response.body;
  EXPECT_GT(unknown.response.retry_after_seconds, 0);
  EXPECT_EQ(answer_to("").response.status, 400);
  its_api.stop();
}

TEST_F(ApiTest, LoginsOfAnAddressAreLimitedAsWrongTokensAre) {
  const auto status = [&](const std::string& remote) {
    const auto admission = api.admit(post("login", "{}", remote)->request());
    return admission.refusal ? admission.refusal->status : 200;
  };
  int let_in = 0;
  while (let_in < 1000 && status("10.0.0.1") == 200) ++let_in;
  EXPECT_GE(let_in, 20);
  EXPECT_LT(let_in, 1000);
  EXPECT_EQ(status("10.0.0.2"), 200);
}

// Each costs the loop a look at a key and a signature, whatever token it brings.
TEST_F(ApiTest, ServersThatJoinAreCountedByAddress) {
  const auto tries = [&](const std::string& remote) {
    const Shared join = post("join", "{}", remote);
    return api.admit(join->request());
  };
  int taken = 0;
  while (taken < 2'000 && !tries("10.0.0.1").refusal) ++taken;
  EXPECT_GE(taken, 500) << "a hall of servers behind one address";
  ASSERT_LT(taken, 2'000);
  EXPECT_EQ(tries("10.0.0.1").refusal->status, 429);
  EXPECT_FALSE(tries("10.0.0.2").refusal);
}

}  // namespace
}  // namespace tutti::controller
