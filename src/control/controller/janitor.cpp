#include "control/controller/janitor.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <future>
#include <memory>

#include "base/log/log.hpp"
#include "control/controller/store_file.hpp"
#include "net/sync/manifest.hpp"

namespace tutti::controller {
namespace {

constexpr auto answer_patience = std::chrono::seconds(30);

Bytes size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? Bytes(status.st_size) : Bytes(0);
}

constexpr std::int64_t store_room_part = 20;
constexpr Bytes store_room_min = mib(64);
constexpr std::int64_t store_room_min_part = 4;  // on a disk for which that is much
constexpr Bytes store_room_max = gib(10);

std::optional<DiskRoom> disk_of(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  return DiskRoom{Bytes(static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize)),
                  Bytes(static_cast<std::int64_t>(disk.f_blocks * disk.f_frsize))};
}

}  // namespace

Bytes store_room(const DiskRoom& disk) {
  const Bytes least = std::min(store_room_min, Bytes(disk.all.count() / store_room_min_part));
  return std::clamp(Bytes(disk.all.count() / store_room_part), least, std::max(least, store_room_max));
}

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
  return {core_.keep(), store_bytes_, blobs_held_.bytes, options_.blobs_bytes_max, options_.blobs_age_max};
}

void Janitor::run() {
  for (;;) {
    clean();
    for (Duration waited{}; waited < janitor_every; waited += store_weighed_every) {
      weigh_store();
      std::unique_lock lock(mutex_);
      if (woken_.wait_for(lock, store_weighed_every, [this] { return stopping_; })) return;
    }
  }
}

std::optional<std::set<std::string>> Janitor::manifests() const {
  auto answer = std::make_shared<std::promise<std::optional<std::set<std::string>>>>();
  auto coming = answer->get_future();
  core_.ask([answer](const cluster::State& state, const wire::StoreHealth& health) {
    // A job that seems to have ended may not have.
    if (!health.state_is_stored) return answer->set_value(std::nullopt);
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

Bytes Janitor::missing(Bytes more) const {
  const auto disk = options_.disk ? options_.disk() : disk_of(options_.folder);
  if (!disk) return Bytes(0);
  return std::max(Bytes(0), store_room(*disk) + more - disk->free);
}

void Janitor::clean() { clean(missing(Bytes(0))); }

void Janitor::clean(Bytes at_least) {
  const std::lock_guard one_at_a_time(cleaning_);
  const auto keep = needed();
  if (!keep) return;
  sync::BlobStore::TrimOptions rules{.bytes_max = options_.blobs_bytes_max,
                                     .count_max = options_.blobs_count / 2,
                                     .age_max = options_.blobs_age_max,
                                     .age_min = blobs_age_min,
                                     .keep = &*keep,
                                     .now = options_.date ? options_.date() : date_.now()};
  auto left = blobs_.trim(rules);
  if (left && (at_least > Bytes(0) || left->count >= options_.blobs_count)) {
    rules.bytes_max = std::max(Bytes(0), left->bytes - at_least);
    rules.age_min = blobs_age_min_short;
    left = blobs_.trim(rules);
  }
  if (!left) log::warning("shipped folders cannot be cleaned up: {}", left.error().text());
  const std::lock_guard lock(mutex_);
  if (left) blobs_held_ = *left;
}

void Janitor::weigh_store() {
  const std::string store = store_file(options_.folder);
  const Bytes bytes = size_of(store) + size_of(store + "-wal");
  const std::lock_guard lock(mutex_);
  store_bytes_ = bytes;
}

bool Janitor::is_crowded() const {
  const std::lock_guard lock(mutex_);
  return blobs_held_.count >= options_.blobs_count;
}

Result<> Janitor::make_room(Bytes more) {
  Bytes over = missing(more);
  if (over == Bytes(0) && !is_crowded()) return {};
  const auto now = std::chrono::steady_clock::now();
  bool due = false;
  {
    const std::lock_guard lock(mutex_);
    due = room_made_ == std::chrono::steady_clock::time_point() || now - room_made_ >= room_made_every;
    if (due) room_made_ = now;
  }
  if (due) {
    clean(over);
    over = missing(more);
  }
  const std::string remedy =
      "wait: what no job needs goes " + format_duration(blobs_age_min_short) + " after it was last used";
  if (is_crowded())
    return failed("the controller has " + std::to_string(options_.blobs_count) +
                  " contents of shipped folders, and keeps no more")
        .remedy("ship fewer and larger files, or " + remedy);
  if (over == Bytes(0)) return {};
  return failed("the controller's disk has no room for shipped folders: what is left is kept for its store")
      .remedy("make room on that disk, or " + remedy);
}

void Janitor::stored(Bytes more) {
  const std::lock_guard lock(mutex_);
  blobs_held_.bytes += sync::room_of(more);
  ++blobs_held_.count;
}

}  // namespace tutti::controller
