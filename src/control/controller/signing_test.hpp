// The API of a controller that signs certificates, over a store that can fail, with its loop on a thread of
// its own. For tests.
#pragma once

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "base/clock/clock.hpp"
#include "base/text.hpp"
#include "control/controller/api.hpp"
#include "control/controller/audit_keeper.hpp"
#include "control/controller/registrar.hpp"
#include "control/controller/vault.hpp"
#include "control/store/memory/memory_store.hpp"

namespace tutti::controller {

// A disk that takes nothing for a while, and can be read.
class FullStore final : public store::Store {
 public:
  Result<std::uint64_t> read(const Each& each) override { return inner_.read(each); }
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override {
    if (full) return {store::CommitResult::Status::unknown, 0, "the disk is full"};
    return inner_.commit(revision, writes);
  }

  std::atomic<bool> full = false;

 private:
  store::MemoryStore inner_;
};

// Who is told something over a WebSocket, and hears nothing.
class DeafSocket final : public net::Socket {
 public:
  using net::Socket::send;
  void send(net::Text) override {}
  void send_later(std::string) override {}
  std::size_t later_bytes() const override { return 0; }
  bool has_unread() const override { return false; }
  void become_known() override {}
  void close() override {}
};

class SignedExchange final : public net::Exchange {
 public:
  explicit SignedExchange(net::Request request) : request_(std::move(request)) {}
  const net::Request& request() const override { return request_; }
  void when_over(std::function<void()>) override {}
  void answer(net::Response response) override { answered_.set_value(std::move(response)); }
  std::shared_ptr<net::Stream> stream(std::function<void()>) override { return nullptr; }
  void upgrade(std::function<void(std::shared_ptr<net::Socket>)> opened) override {
    opened(std::make_shared<DeafSocket>());
    answered_.set_value({.status = 101, .body = ""});
  }
  std::future<net::Response> answered() { return answered_.get_future(); }

 private:
  net::Request request_;
  std::promise<net::Response> answered_;
};

class Signing : public testing::Test {
 protected:
  Signing() {
    EXPECT_TRUE(core_.start().ok());
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Signing() override {
    on_loop([this] { loop_.stop(); });
    thread_.join();
    api_.stop();
    core_.stop();
    std::filesystem::remove_all(folder_);
  }

  template <class Task>
  void on_loop(Task task) {
    std::promise<void> done;
    loop_.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  static net::Request request(const std::string& method, const std::string& page, std::string body = "") {
    net::Request asked;
    asked.method = method;
    asked.remote = "10.0.0.7";
    asked.path = std::string(api_prefix) + "/" + page;
    for (const std::string_view part : split(std::string_view(asked.path).substr(1), '/'))
      asked.parts.emplace_back(part);
    asked.body_bytes = body.size();
    asked.body = std::move(body);
    return asked;
  }
  net::Response ask(net::Request asked) {
    const auto exchange = std::make_shared<SignedExchange>(std::move(asked));
    auto answered = exchange->answered();
    loop_.post([this, exchange] { api_.handle(exchange); });
    return answered.get();
  }
  net::Response ask_as_admin(const std::string& method, const std::string& page, std::string body = "") {
    net::Request asked = request(method, page, std::move(body));
    asked.bearer = "admin";
    return ask(std::move(asked));
  }
  // The audit log, as it is in memory.
  std::string log() {
    std::promise<std::string> told;
    core_.ask([&](const cluster::State& state, const auto&) {
      std::string text;
      for (const auto& [first, lines] : state.audit.lines) text += lines;
      told.set_value(std::move(text));
    });
    return told.get_future().get();
  }

  static std::string make_folder() {
    std::string path = (std::filesystem::temp_directory_path() / "tutti-signing-XXXXXX").string();
    const std::string folder = mkdtemp(path.data());
    EXPECT_TRUE(make_authority_file(folder, now_on_the_wall()).ok());
    return folder;
  }

  const std::string folder_ = make_folder();
  FullStore store_;
  net::Loop loop_;
  Registrar registrar_ =
      *Registrar::open(**read_authorities(folder_), {.folder = folder_, .addresses = {"127.0.0.1"}});
  Core core_{store_, [this](const driver::Delivery& delivery) {
               loop_.post([this, delivery] { registrar_.hear(delivery); });
             }};
  Hub hub_{loop_, core_};
  Explainer explainer_;
  Janitor janitor_{core_, {.folder = folder_}};
  AuditKeeper audit_{core_, {.folder = folder_}};
  Vault vault_{core_, folder_};
  Api api_{core_,
           hub_,
           explainer_,
           janitor_,
           audit_,
           vault_,
           {.tokens = {"admin", "join"},
            .blob_folder = "",
            .requests = {.per_second = 1000, .burst = 1000},
            .registrar = &registrar_,
            .takes_join_token = false}};
  std::thread thread_;
};

}  // namespace tutti::controller
