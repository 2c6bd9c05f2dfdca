// What tests of the gateway stand on: engines that do what they are told, and a gateway before them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gate/gateway/gateway.hpp"
#include "net/http/client.hpp"
#include "net/http/server.hpp"

namespace tutti::gate {

// An engine that does what a test tells it, on a thread of its own.
class Stub {
 public:
  using Do = std::function<void(const std::shared_ptr<net::Exchange>&)>;

  explicit Stub(std::vector<std::string> models = {"m"}, std::uint16_t port = 0,
                std::optional<net::ServerIdentity> identity = std::nullopt)
      : models_(std::move(models)), is_secure_(identity.has_value()) {
    auto listening = net::Server::listen(
        loop_, {.port = port, .identity = std::move(identity), .headers = {"tutti-resumable"}},
        [this](const std::shared_ptr<net::Exchange>& exchange) { handle(exchange); });
    EXPECT_TRUE(listening) << (listening ? "" : listening.error().text());
    server_ = std::move(*listening);
    port_ = server_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Stub() { kill(); }
  Stub(const Stub&) = delete;
  Stub& operator=(const Stub&) = delete;

  void kill() {
    freeze();
    server_.reset();
  }
  // Whoever connects, or is connected, hears nothing more.
  void freeze() {
    if (!thread_.joinable()) return;
    loop_.stop();
    thread_.join();
  }
  // What it does with a request, each in its turn; the last one again and again.
  void then(Do task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  std::vector<std::string> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  // Who looks at it finds nobody from now on, and who asks it hears as before.
  void hide() { is_hidden_ = true; }
  // What it says of its work.
  void tell_health(std::string text) {
    const std::lock_guard lock(mutex_);
    health_ = std::move(text);
  }
  std::uint16_t port() const { return port_; }
  std::string url() const {
    return (is_secure_ ? "https" : "http") + ("://127.0.0.1:" + std::to_string(port_));
  }

  static Do answer(int status, const std::string& body, int retry_after = 0) {
    return [=](const auto& exchange) {
      exchange->answer({.status = status, .body = body, .retry_after_seconds = retry_after});
    };
  }
  // Says this, and what becomes of it then.
  static Do stream(const std::string& text, bool ends = true) {
    return [=](const auto& exchange) {
      const auto out = exchange->stream([] {});
      out->write(text, [out, ends] { ends ? out->close() : out->cut(); });
    };
  }

 private:
  std::string health() const {
    const std::lock_guard lock(mutex_);
    return health_;
  }
  void handle(const std::shared_ptr<net::Exchange>& exchange) {
    const net::Request& request = exchange->request();
    if (request.path == "/v1/models" && is_hidden_) return exchange->stream([] {})->cut();
    if (request.path == "/v1/models" && !models_.empty()) {
      std::string list;
      for (const std::string& model : models_)
        list += (list.empty() ? "" : ",") + std::string("{\"id\":\"") + model + "\",\"object\":\"model\"}";
      return exchange->answer({.body = "{\"object\":\"list\",\"data\":[" + list + "]}"});
    }
    if (request.path == "/v1/models") return exchange->answer({.status = 404});
    if (request.path == "/v2/health/ready") return exchange->answer({.body = "{}"});
    if (request.path == "/health") return exchange->answer({.body = health()});
    Do task;
    {
      const std::lock_guard lock(mutex_);
      bodies_.push_back(request.body);
      ASSERT_FALSE(tasks_.empty()) << request.path;
      task = tasks_.front();
      if (tasks_.size() > 1) tasks_.pop_front();
    }
    task(exchange);
  }

  const std::vector<std::string> models_;
  const bool is_secure_;
  std::atomic<bool> is_hidden_ = false;
  net::Loop loop_;
  std::unique_ptr<net::Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::deque<Do> tasks_;
  std::vector<std::string> bodies_;
  std::string health_ = "{}";
};

inline std::string tokens(const std::string& numbers) { return ": tutti" + numbers + "\n"; }
inline std::string data(const std::string& text) {
  return "data: {\"id\":\"cmpl-1\",\"created\":5,\"choices\":[{\"text\":\"" + text +
         "\",\"finish_reason\":null}]}\n\n";
}
inline const std::string finish =
    "data: {\"id\":\"cmpl-1\",\"created\":5,\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n";
inline const std::string done = "data: [DONE]\n\n";

class GatewayTest : public testing::Test {
 protected:
  void begin(const std::vector<const Stub*>& stubs, GatewaySettings settings = {}) {
    for (const Stub* stub : stubs)
      settings.backends.push_back({{.host = "127.0.0.1", .port = stub->port(), .who = "backend"}, ""});
    begin(std::move(settings), stubs.size());
  }
  void begin(GatewaySettings settings, std::size_t ready) {
    auto listening = Gateway::listen(settings);
    ASSERT_TRUE(listening) << listening.error().text();
    gateway_ = std::move(*listening);
    std::promise<void> all_ready;
    auto left = std::make_shared<std::size_t>(ready);
    gateway_->when_turned([this, left, &all_ready](const BackendView& view) {
      {
        const std::lock_guard lock(mutex_);
        turned_.push_back(view);
      }
      if (*left > 0 && view.is_ready && --*left == 0) all_ready.set_value();
    });
    thread_ = std::thread([this] { gateway_->run(); });
    if (ready > 0) all_ready.get_future().wait();
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    gateway_->stop();
    thread_.join();
  }

  net::Client client(const std::string& key = "") const {
    return {net::Target{.host = "127.0.0.1", .port = gateway_->port(), .who = "gateway"}, key};
  }
  net::Response ask(const std::string& body, const std::string& path = "/v1/completions") const {
    auto answer = client().request("POST", path, body);
    EXPECT_TRUE(answer) << answer.error().text();
    return answer ? *answer : net::Response{.status = 0};
  }
  net::Response get(const std::string& path) const {
    auto answer = client().request("GET", path);
    EXPECT_TRUE(answer) << answer.error().text();
    return answer ? *answer : net::Response{.status = 0};
  }
  // How often the word stands in /metrics with this value.
  std::string metric(const std::string& name) const {
    const std::string text = get("/metrics").body;
    const auto at = text.find("\n" + name + " ");
    if (at == std::string::npos) return "";
    const auto begin = at + name.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  std::unique_ptr<Gateway> gateway_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<BackendView> turned_;
};

inline const std::string whole = R"({"model":"m","prompt":"x"})";
inline const std::string streamed = R"({"model":"m","prompt":"x","stream":true})";

}  // namespace tutti::gate
