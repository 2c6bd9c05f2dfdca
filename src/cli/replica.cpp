#include "cli/replica.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "cli/terminal.hpp"
#include "net/pki/pki.hpp"
#include "node/rank/secrets.hpp"
#include "serve/server/front.hpp"
#include "serve/server/key.hpp"

namespace tutti::cli {
namespace {

constexpr const char* address_variable = "MASTER_ADDR";
constexpr const char* file_variable = "TUTTI_PROGRESS_FILE";
constexpr const char* key_name = "engine.key";
constexpr Duration look_time_max = 5s;
constexpr std::size_t reason_bytes_max = 256;

std::string value_of_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As an engine of either kind says it, in a line that no ready one says.
std::string reason_of(const std::string& body) {
  const auto said = nlohmann::json::parse(body, nullptr, false);
  if (!said.is_object() || !said.contains("error")) return "not ready";
  const auto& error = said["error"];
  const std::string message = error.is_string()   ? error.get<std::string>()
                              : error.is_object() ? error.value("message", "")
                                                  : "";
  return "not ready: " + message.substr(0, std::min(message.find('\n'), reason_bytes_max));
}

}  // namespace

// Looks and writes on a thread of its own: a disk that does not answer keeps nobody's answer waiting.
class Replica::Watch {
 public:
  Watch(net::Target own, const std::string& key, std::string file)
      : ready_("ready " + std::to_string(own.port)), file_(std::move(file)), client_(std::move(own), key) {
    client_.give_up_when([this] { return stop_.stop_requested(); });
    thread_ = std::thread([this] { run(); });
  }
  ~Watch() {
    stop_.request_stop();
    woken_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void run() {
    say(ready_);
    std::unique_lock lock(mutex_);
    while (!woken_.wait_for(lock, stop_.get_token(), replica_look_every, [] { return false; }) &&
           !stop_.stop_requested()) {
      const auto answer = client_.request("GET", "/health", "", look_time_max);
      // Who is slow is not away: others judge by his answers.
      if (answer) say(answer->status == 200 ? ready_ : reason_of(answer->body));
    }
  }
  void say(const std::string& word) {
    if (word == said_) return;
    const auto written = files::replace_file(file_, word + "\n");
    if (written) said_ = word;
    if (!written && !std::exchange(is_told_, true)) print_note(written.error().text());
  }

  const std::string ready_;
  const std::string file_;
  net::Client client_;
  std::string said_;
  bool is_told_ = false;  // that nothing can be written
  std::mutex mutex_;
  std::condition_variable_any woken_;
  std::stop_source stop_;
  std::thread thread_;
};

Replica::Replica(net::Target own, std::string key, std::string file)
    : own_(std::move(own)), key_(std::move(key)), file_(std::move(file)) {}
Replica::~Replica() = default;

Result<std::unique_ptr<Replica>> Replica::find() {
  const std::string file = value_of_variable(file_variable);
  const std::string address = value_of_variable(address_variable);
  if (file.empty() || address.empty())
    return invalid(std::string(file.empty() ? file_variable : address_variable) + " is not set")
        .within("--replica")
        .remedy("it is for a process that the cluster starts: `tutti serve MODEL` lets it do so");
  std::string key;
  if (const std::string folder = value_of_variable(rank::secrets_variable); !folder.empty()) {
    const std::string path = folder + "/" + key_name;
    if (::access(path.c_str(), F_OK) == 0) {
      auto read = serve::read_own_key(path);
      if (!read) return std::move(read).error();
      key = std::move(*read);
    }
  }
  const bool is_here = address == "localhost" || serve::is_loopback(address);
  std::unique_ptr<Replica> replica(
      new Replica({.host = is_here ? "127.0.0.1" : address, .who = "engine"}, std::move(key), file));
  if (!is_here && !replica->key().empty()) {
    if (auto made = replica->make_identity(); !made) return std::move(made).error();
  }
  return replica;
}

Result<> Replica::make_identity() {
  auto authority = pki::authority_of_secret(key_, now_on_the_wall());
  auto server = pki::server_of_secret(key_, own_.host, now_on_the_wall());
  if (!authority) return std::move(authority).error();
  if (!server) return std::move(server).error();
  own_.authority = authority->certificate;
  identity_ = net::ServerIdentity{server->certificate, server->key, ""};
  return {};
}

Result<> Replica::begin(std::uint16_t port, const std::string& path, const std::string& body) {
  own_.port = port;
  net::Client client(own_, key_);
  const auto answer = client.request(body.empty() ? "GET" : "POST", path, body, replica_first_time_max);
  if (!answer) return Error(answer.error()).within("the first request");
  if (answer->status != 200)
    return failed("it answers " + std::to_string(answer->status) + ": " +
                  answer->body.substr(0, reason_bytes_max))
        .within("the first request");
  watch_ = std::make_unique<Watch>(own_, key_, file_);
  return {};
}

}  // namespace tutti::cli
