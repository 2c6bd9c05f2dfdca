#include "node/agent/shipped.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include <system_error>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "net/sync/materialise.hpp"

namespace tutti::agent {
namespace {

constexpr Bytes cache_bytes_max = sync::folder_bytes_max;
// A controller that is being restarted, or that a thousand nodes ask at once, is no fault of this node's.
constexpr Duration fetch_patience = 60s;
constexpr Duration fetch_pause_min = 100ms;
constexpr Duration fetch_pause_max = 2s;

bool may_be_asked_again(const Result<net::Response>& answer) {
  return !answer || answer->status == 429 || answer->status == 503;
}

}  // namespace

Shipped::Shipped(net::Target controller, std::string token, const std::string& folder)
    : controller_(std::move(controller)),
      token_(std::move(token)),
      folder_(folder + "/work"),
      blobs_(folder + "/blobs") {}

void Shipped::prepare(const std::string& manifest, const std::string& name,
                      std::function<void(Result<std::string>)> done) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      try {
        thread_ = std::thread([this] { run(); });
      } catch (const std::system_error& why) {
        return done(failed(std::string("no thread can be started: ") + why.what()));
      }
    }
    tasks_.push_back([this, manifest, name, done = std::move(done)] { done(lay_out(manifest, name)); });
  }
  woken_.notify_one();
}

void Shipped::finish() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Shipped::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

bool Shipped::pause(Duration time) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [this] { return stopping_; });
}

Result<> Shipped::fetch(net::Client& client, const std::string& hash) {
  const std::string path = "/api/v1/blobs/" + hash;
  const auto give_up_at = std::chrono::steady_clock::now() + fetch_patience;
  auto content = client.request("GET", path);
  for (Duration wait = fetch_pause_min; may_be_asked_again(content);
       wait = std::min(2 * wait, fetch_pause_max)) {
    if (std::chrono::steady_clock::now() > give_up_at || !pause(wait)) break;
    content = client.request("GET", path);
  }
  if (!content) return std::move(content).error();
  if (content->status == 404)
    return invalid("the controller does not have it").within("shipped file " + hash);
  if (content->status != 200)
    return failed("the controller answered with HTTP status " + std::to_string(content->status))
        .within("shipped file " + hash);
  return blobs_.put(hash, as_bytes(content->body));
}

Result<std::string> Shipped::lay_out(const std::string& manifest_hash, const std::string& name) {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  net::Client client(controller_, token_);
  if (!blobs_.has(manifest_hash)) {
    if (auto fetched = fetch(client, manifest_hash); !fetched) return std::move(fetched).error();
  }
  auto encoded = blobs_.get(manifest_hash);
  if (!encoded) return std::move(encoded).error();
  auto manifest = sync::decode(*encoded);
  if (!manifest) return std::move(manifest).error();
  for (const auto& hash : sync::missing(*manifest, blobs_)) {
    if (auto fetched = fetch(client, hash); !fetched) return std::move(fetched).error();
  }
  // A folder that is already there may be what a power cut left of it: it is made again.
  std::string target = path_of(name);
  if (auto removed = files::remove_folder(target); !removed) return std::move(removed).error();
  if (auto made = sync::materialise(*manifest, blobs_, target); !made) return std::move(made).error();
  static_cast<void>(blobs_.trim(cache_bytes_max));
  return target;
}

}  // namespace tutti::agent
