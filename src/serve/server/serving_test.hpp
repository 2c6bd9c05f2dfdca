// A server on a port of the system's choice, with a small model, and clients of it. One test at a time.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "net/http/client.hpp"
#include "serve/cpu/tiny_folder_test.hpp"
#include "serve/server/server.hpp"

namespace tutti::serve {

// Bytes as they are, on a connection that a test may leave at any moment.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_bytes = 0, const std::string& from = "127.0.0.1")
      : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0)
      ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(::inet_pton(AF_INET, from.c_str(), &address.sin_addr), 1);
    EXPECT_EQ(::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { ::close(descriptor_); }

  void send(const std::string& bytes) const { ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void post(const std::string& path, const std::string& body) const {
    send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body);
  }
  bool has_answer() const {
    char first = 0;
    return ::recv(descriptor_, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  void says_no_more() const { ::shutdown(descriptor_, SHUT_WR); }
  // All that comes until the text has come, or until the other side closes.
  std::string read_until(const std::string& text) const {
    std::string got;
    char buffer[4096];
    for (ssize_t count = 0; (count = ::recv(descriptor_, buffer, sizeof buffer, 0)) > 0;) {
      got.append(buffer, static_cast<std::size_t>(count));
      if (!text.empty() && got.find(text) != std::string::npos) break;
    }
    return got;
  }

 private:
  int descriptor_;
};

// A model whose process can be said to have ended.
class Mortal final : public Model {
 public:
  Mortal(std::unique_ptr<Model> inner, std::shared_ptr<std::atomic<bool>> is_dead)
      : inner_(std::move(inner)), is_dead_(std::move(is_dead)) {}
  const Limits& limits() const override { return inner_->limits(); }
  Result<> step(std::span<const Chunk> chunks) override {
    if (*is_dead_) return failed("it is dead");
    return inner_->step(chunks);
  }
  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    return inner_->choose(choices);
  }
  Result<std::vector<float>> logits(std::int32_t row) override { return inner_->logits(row); }
  bool is_lost() override { return *is_dead_; }
  std::string why_lost() const override { return "it is dead"; }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<Model> inner_;
  std::shared_ptr<std::atomic<bool>> is_dead_;
};

class Serving : public testing::Test {
 protected:
  static constexpr std::int64_t context = 4096;

  static void SetUpTestSuite() {
    folder = std::make_unique<cpu::TinyFolder>(257, context, tokenizer::Tokenizer::bytes().json());
  }
  static void TearDownTestSuite() { folder.reset(); }

  static ServerSettings settings() {
    ServerSettings made;
    made.batch.sequences_max = 8;
    return made;
  }

  void listen(const ServerSettings& settings) {
    auto listening = Server::listen(settings);
    ASSERT_TRUE(listening) << listening.error().text();
    server = std::move(*listening);
    thread = std::thread([this] { server->run(); });
  }
  void load_model(std::int64_t context_max = 0, const std::string& path = folder->path(),
                  const std::vector<NamedAdapter>& adapters = {}) {
    auto loaded = load(path, {.threads = 1,
                              .context_max = context_max,
                              .cache_bytes = 16 << 20,
                              .step_tokens_max = 256,
                              .step_rows_max = 8,
                              .adapters = adapters,
                              .name = "tiny"});
    ASSERT_TRUE(loaded) << loaded.error().text();
    server->start(std::move(*loaded));
  }
  void serve(const ServerSettings& settings = Serving::settings(), std::int64_t context_max = 0) {
    listen(settings);
    load_model(context_max);
  }
  void TearDown() override {
    if (!thread.joinable()) return;
    server->stop();
    thread.join();
  }

  net::Client client(const std::string& key = "") const {
    return {net::Target{.host = "127.0.0.1", .port = server->port(), .who = "engine"}, key};
  }
  net::Response post(const std::string& path, const std::string& body) const {
    auto answer = client().request("POST", path, body);
    EXPECT_TRUE(answer) << answer.error().text();
    return answer ? *answer : net::Response{.status = 0};
  }
  net::Response get(const std::string& path) const {
    auto answer = client().request("GET", path);
    EXPECT_TRUE(answer) << answer.error().text();
    return answer ? *answer : net::Response{.status = 0};
  }
  static json::Value parsed(const std::string& text) {
    auto value = json::parse(text);
    EXPECT_TRUE(value) << text;
    return value ? *value : json::Value();
  }
  // The texts of the answers of a completion.
  static std::vector<std::string> texts(const net::Response& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<std::string> all;
    const json::Value root = parsed(response.body);
    if (root.find("choices") == nullptr) return all;
    for (const json::Value& choice : *root.find("choices")->list())
      all.push_back(*choice.find("text")->text());
    return all;
  }
  // Looks until it holds; the test's own time limit ends it otherwise.
  static void wait_until(const std::function<bool()>& holds) {
    while (!holds()) std::this_thread::yield();
  }
  bool is_idle() const {
    const BatchCounts counts = server->counts().batch;
    return counts.requests == 0 && counts.blocks_used == 0;
  }

  static inline std::unique_ptr<cpu::TinyFolder> folder;
  std::unique_ptr<Server> server;
  std::thread thread;
};

}  // namespace tutti::serve
