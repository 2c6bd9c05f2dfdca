#include "control/controller/janitor.hpp"

#include <sys/stat.h>

#include <future>
#include <memory>

#include "base/log/log.hpp"
#include "net/sync/manifest.hpp"

namespace tutti::controller {
namespace {

constexpr auto answer_patience = std::chrono::seconds(30);

Bytes size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? Bytes(status.st_size) : Bytes(0);
}

}  // namespace

Janitor::Janitor(Core& core, JanitorOptions options)
    : core_(core), options_(std::move(options)), blobs_(options_.folder + "/blobs") {}

void Janitor::start() {
  thread_ = std::thread([this] { run(); });
}

void Janitor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

wire::Kept Janitor::kept() const {
  const std::lock_guard lock(mutex_);
  return {core_.keep(), store_bytes_, blobs_bytes_, options_.blobs_bytes_max, options_.blobs_age_max};
}

void Janitor::run() {
  for (;;) {
    clean();
    std::unique_lock lock(mutex_);
    if (woken_.wait_for(lock, janitor_every, [this] { return stopping_; })) return;
  }
}

std::optional<std::set<std::string>> Janitor::manifests() const {
  auto answer = std::make_shared<std::promise<std::set<std::string>>>();
  auto coming = answer->get_future();
  core_.ask([answer](const cluster::State& state, const wire::StoreHealth&) {
    std::set<std::string> hashes;
    for (const cluster::JobId id : state.active) {
      const std::string& hash = state.jobs.at(id).spec.sync;
      if (!hash.empty()) hashes.insert(hash);
    }
    answer->set_value(std::move(hashes));
  });
  if (coming.wait_for(answer_patience) != std::future_status::ready) return std::nullopt;
  return coming.get();
}

std::optional<std::set<std::string>> Janitor::needed() const {
  auto all = manifests();
  if (!all) return std::nullopt;
  for (const std::string& hash : std::set(*all)) {
    const auto encoded = blobs_.get(hash);
    // What cannot be read now may be read later: until then nobody knows what its job needs.
    if (!encoded && encoded.error().code() != ErrorCode::damaged) {
      log::warning("shipped folders are not cleaned up now: {}", encoded.error().text());
      return std::nullopt;
    }
    // Its job cannot be started any more, whatever else is kept of it.
    if (!encoded || !*encoded) continue;
    const auto manifest = sync::decode(**encoded);
    if (!manifest) continue;
    for (const auto& entry : manifest->entries) all->insert(entry.chunks.begin(), entry.chunks.end());
  }
  return all;
}

void Janitor::clean() {
  const auto keep = needed();
  if (!keep) return;
  const auto left = blobs_.trim({.bytes_max = options_.blobs_bytes_max,
                                 .age_max = options_.blobs_age_max,
                                 .age_min = blobs_age_min,
                                 .keep = &*keep});
  if (!left) log::warning("shipped folders cannot be cleaned up: {}", left.error().text());
  const std::string store = options_.folder + "/store.db";
  const std::lock_guard lock(mutex_);
  store_bytes_ = size_of(store) + size_of(store + "-wal");
  if (left) blobs_bytes_ = *left;
}

}  // namespace tutti::controller
