// Real engines behind a gateway: what clients read is what one engine alone writes, whoever dies meanwhile.
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "gate/gateway/gateway.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "net/http/client.hpp"
#include "serve/cpu/tiny_folder_test.hpp"
#include "serve/load/load.hpp"
#include "serve/server/server.hpp"

namespace tutti::gate {
namespace {

constexpr std::int64_t context = 4096;

// One engine of a small model, that can be ended at any moment.
class Engine {
 public:
  explicit Engine(const std::string& folder) {
    serve::ServerSettings settings;
    settings.batch.sequences_max = 8;
    auto listening = serve::Server::listen(settings);
    EXPECT_TRUE(listening) << (listening ? "" : listening.error().text());
    server_ = std::move(*listening);
    port_ = server_->port();
    thread_ = std::thread([this] { server_->run(); });
    auto loaded = serve::load(
        folder,
        {.threads = 1, .cache_bytes = 16 << 20, .step_tokens_max = 256, .step_rows_max = 8, .name = "tiny"});
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().text());
    server_->start(std::move(*loaded));
  }
  ~Engine() { kill(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Its connections break off, as those of a process that is killed.
  void kill() {
    if (!server_) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }
  std::uint16_t port() const { return port_; }
  bool is_busy() const { return server_ && server_->counts().batch.requests > 0; }

 private:
  std::unique_ptr<serve::Server> server_;
  std::thread thread_;
  std::uint16_t port_ = 0;
};

class Engines : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::make_unique<serve::cpu::TinyFolder>(257, context, tokenizer::Tokenizer::bytes().json());
  }
  static void TearDownTestSuite() { folder.reset(); }

  void begin(std::size_t count) {
    GatewaySettings settings;
    for (std::size_t at = 0; at < count; ++at) {
      engines.push_back(std::make_unique<Engine>(folder->path()));
      settings.backends.push_back(
          {{.host = "127.0.0.1", .port = engines.back()->port(), .who = "backend"}, ""});
    }
    auto listening = Gateway::listen(settings);
    ASSERT_TRUE(listening) << listening.error().text();
    gateway = std::move(*listening);
    std::promise<void> all_ready;
    auto left = std::make_shared<std::size_t>(count);
    gateway->when_turned([left, &all_ready](const BackendView& view) {
      if (view.is_ready && *left > 0 && --*left == 0) all_ready.set_value();
    });
    thread = std::thread([this] { gateway->run(); });
    all_ready.get_future().wait();
  }
  void TearDown() override {
    if (!thread.joinable()) return;
    gateway->stop();
    thread.join();
  }

  // What is said in a stream: its text, why it ended, and all that is not the same for two answers taken out.
  struct Said {
    std::string text;
    std::string finish;
    std::string usage;
    std::set<std::string> ids;
    int roles = 0;
    std::size_t events = 0;
    std::string problem;
  };
  static void hear(const json::Value& chunk, Said& said) {
    said.ids.insert(chunk.find("id") == nullptr ? "" : *chunk.find("id")->text());
    if (const auto* usage = chunk.find("usage"); usage != nullptr && !usage->is_null())
      said.usage = std::to_string(usage->find("prompt_tokens")->whole().value_or(-1)) + "+" +
                   std::to_string(usage->find("completion_tokens")->whole().value_or(-1));
    const auto* choices = chunk.find("choices");
    if (choices == nullptr || choices->list()->empty()) return;
    const json::Value& choice = choices->list()->front();
    if (const auto* finish = choice.find("finish_reason"); finish != nullptr && finish->text() != nullptr)
      said.finish += *finish->text();
    const auto* delta = choice.find("delta");
    if (delta != nullptr && delta->find("role") != nullptr) ++said.roles;
    const auto* text = delta == nullptr ? choice.find("text") : delta->find("content");
    if (text != nullptr && text->text() != nullptr) said.text += *text->text();
  }
  // `heard` runs behind each event.
  static Said ask(std::uint16_t port, const std::string& path, const std::string& body,
                  const std::function<void(std::size_t)>& heard = nullptr) {
    Said said;
    net::Client client({.host = "127.0.0.1", .port = port, .who = "server"}, "");
    const auto done = client.events(
        "POST", path, body,
        [&](std::string_view, std::string_view data) {
          if (data == "[DONE]") return true;
          const auto chunk = json::parse(data);
          EXPECT_TRUE(chunk) << data;
          if (chunk && chunk->find("error") != nullptr) said.problem = data;
          if (chunk) hear(*chunk, said);
          ++said.events;
          if (heard) heard(said.events);
          return true;
        },
        [] { return true; });
    if (!done) said.problem = done.error().text();
    return said;
  }

  static inline std::unique_ptr<serve::cpu::TinyFolder> folder;
  std::vector<std::unique_ptr<Engine>> engines;
  std::unique_ptr<Gateway> gateway;
  std::thread thread;
};

const std::map<std::string, std::string> requests{
    {"greedy", R"("prompt":"once upon","temperature":0,"max_tokens":1500)"},
    {"seeded", R"("prompt":"once upon","temperature":1,"seed":7,"max_tokens":1500)"},
    {"penalized", R"("prompt":"abc","temperature":0.8,"seed":3,"frequency_penalty":0.3,"max_tokens":1200)"}};

TEST_F(Engines, AStreamWhoseEngineDiesIsWhatOneAloneWrites) {
  Engine alone(folder->path());
  for (const auto& [name, fields] : requests) {
    begin(3);
    const std::string body =
        R"({"model":"tiny","ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},)" +
        fields + "}";
    const Said expected = ask(alone.port(), "/v1/completions", body);
    ASSERT_EQ(expected.problem, "");
    // Whoever tells it is ended, and the next one, too, unless all has been told by then.
    int killed = 0;
    const Said said = ask(gateway->port(), "/v1/completions", body, [&](std::size_t events) {
      if (killed == 2 || events < (killed == 0 ? 20U : 60U)) return;
      for (const auto& engine : engines) {
        if (!engine->is_busy()) continue;
        engine->kill();
        ++killed;
        return;
      }
    });
    ASSERT_GE(killed, 1) << name;
    EXPECT_EQ(said.problem, "") << name;
    EXPECT_EQ(said.text, expected.text) << name;
    EXPECT_EQ(said.finish, expected.finish) << name;
    EXPECT_EQ(said.usage, expected.usage) << name;
    EXPECT_EQ(said.ids.size(), 1U) << name;
    net::Client client({.host = "127.0.0.1", .port = gateway->port(), .who = "gateway"}, "");
    const auto metrics = client.request("GET", "/metrics");
    ASSERT_TRUE(metrics);
    EXPECT_NE(metrics->body.find("tutti_gateway_streams_continued_total " + std::to_string(killed) + "\n"),
              std::string::npos)
        << name << ": " << metrics->body;
    TearDown();
    engines.clear();
  }
}

TEST_F(Engines, AConversationSaysOnceWhoSpeaks) {
  Engine alone(folder->path());
  begin(2);
  const std::string body =
      R"({"messages":[{"role":"user","content":"?"}],"temperature":0,"max_tokens":800,"ignore_eos":true,"stream":true})";
  const Said expected = ask(alone.port(), "/v1/chat/completions", body);
  ASSERT_EQ(expected.problem, "");
  const Said said = ask(gateway->port(), "/v1/chat/completions", body, [&](std::size_t events) {
    if (events != 20) return;
    for (const auto& engine : engines) {
      if (engine->is_busy()) return engine->kill();
    }
  });
  EXPECT_EQ(said.problem, "");
  EXPECT_EQ(said.text, expected.text);
  EXPECT_EQ(said.roles, 1);
  EXPECT_EQ(said.finish, expected.finish);
}

TEST_F(Engines, ManyAtOnceLoseNothingWhenOneDies) {
  Engine alone(folder->path());
  begin(2);
  std::vector<std::future<Said>> all;
  std::vector<std::string> bodies;
  for (int nth = 0; nth < 12; ++nth)
    bodies.push_back(R"({"prompt":"story )" + std::to_string(nth) +
                     R"(","temperature":1,"seed":5,"max_tokens":300,"ignore_eos":true,"stream":true})");
  std::atomic<bool> is_killed = false;
  for (const std::string& body : bodies)
    all.push_back(std::async(std::launch::async, [&] {
      return ask(gateway->port(), "/v1/completions", body, [&](std::size_t events) {
        if (events == 30 && !is_killed.exchange(true)) engines.front()->kill();
      });
    }));
  for (std::size_t nth = 0; nth < all.size(); ++nth) {
    const Said said = all[nth].get();
    EXPECT_EQ(said.problem, "");
    EXPECT_EQ(said.text, ask(alone.port(), "/v1/completions", bodies[nth]).text) << nth;
  }
}

}  // namespace
}  // namespace tutti::gate
