#include "node/agent/shipped.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/materialise.hpp"
#include "node/agent/health.hpp"

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

// Where files share blocks the folder takes none of its own.
bool shares_blocks(const std::string& folder) {
  struct statfs disk {};
  return ::statfs(folder.c_str(), &disk) == 0 &&
         (disk.f_type == XFS_SUPER_MAGIC || disk.f_type == BTRFS_SUPER_MAGIC);
}

}  // namespace

Bytes free_bytes_in(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return sync::most_bytes;
  return Bytes(static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize));
}

Shipped::Shipped(net::Target controller, std::string token, const std::string& folder, FreeBytes free_bytes)
    : controller_(std::move(controller)),
      token_(std::move(token)),
      folder_(folder + "/work"),
      free_bytes_(std::move(free_bytes)),
      blobs_(folder + "/blobs") {}

void Shipped::prepare(const std::string& manifest, const std::string& name, Done done) {
  const auto task = std::make_shared<Task>();
  task->manifest = manifest;
  task->name = name;
  task->done = std::move(done);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(task);
    woken_.notify_all();
    if (idle_ >= waiting_.size() || threads_.size() == shipped_threads_max) return;
    if (add_thread() || !threads_.empty()) return;
    waiting_.pop_back();
  }
  task->done(failed("no thread can be started"), keeper::Hindrance::node);
}

bool Shipped::add_thread() {
  try {
    threads_.emplace_back([this] { run(); });
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

void Shipped::drop(const std::string& name) {
  std::vector<TaskPointer> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = working_.find(name); found != working_.end()) found->second->unwanted = true;
    for (const TaskPointer& task : waiting_) {
      if (task->name == name) dropped.push_back(task);
    }
    std::erase_if(waiting_, [&](const TaskPointer& task) { return task->name == name; });
  }
  woken_.notify_all();
  for (const TaskPointer& task : dropped)
    task->done(failed("nobody wants it any more"), keeper::Hindrance::passing);
}

void Shipped::finish() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

Shipped::TaskPointer Shipped::next_task() {
  if (trimming_) return nullptr;
  const auto free = std::find_if(waiting_.begin(), waiting_.end(),
                                 [this](const TaskPointer& task) { return !working_.contains(task->name); });
  if (free == waiting_.end()) return nullptr;
  TaskPointer task = *free;
  waiting_.erase(free);
  working_[task->name] = task;
  return task;
}

void Shipped::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    TaskPointer task;
    ++idle_;
    woken_.wait(lock, [&] { return stopping_ || (task = next_task()) != nullptr; });
    --idle_;
    if (stopping_) return;
    lock.unlock();
    auto folder = tried(*task);
    lock.lock();
    working_.erase(task->name);
    // While somebody lays out, what that one needs has to stay.
    const bool alone = trimming_ = working_.empty();
    lock.unlock();
    task->done(std::move(folder), task->hindrance);
    if (alone) static_cast<void>(blobs_.trim(cache_bytes_max));
    lock.lock();
    if (alone) trimming_ = false;
    woken_.notify_all();  // who waited for that, or for one of the same name
  }
}

bool Shipped::pause(Duration time, const Task& task) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [&] { return stopping_ || task.unwanted; });
}

Result<> Shipped::fetch(net::Client& client, const std::string& hash, Task& task) {
  if (task.unwanted) return failed("nobody wants it any more");
  const std::string path = "/api/v1/blobs/" + hash;
  const auto give_up_at = std::chrono::steady_clock::now() + fetch_patience;
  auto content = client.request("GET", path);
  for (Duration wait = fetch_pause_min; may_be_asked_again(content);
       wait = std::min(2 * wait, fetch_pause_max)) {
    if (std::chrono::steady_clock::now() > give_up_at || !pause(wait, task)) break;
    content = client.request("GET", path);
  }
  if (may_be_asked_again(content)) task.hindrance = keeper::Hindrance::passing;
  if (!content) return std::move(content).error();
  if (content->status == 404)
    return invalid("the controller does not have it").within("shipped file " + hash);
  if (content->status != 200)
    return failed("the controller answered with HTTP status " + std::to_string(content->status))
        .within("shipped file " + hash);
  return blobs_.put(hash, as_bytes(content->body));
}

// What comes in and what is laid out, before any of it is there: a folder that is too large for the disk of
// this node must not fill it and take the node from all others.
Result<> Shipped::check_room(const sync::Manifest& manifest) const {
  const auto lacking = sync::missing(manifest, blobs_);
  std::set<std::string> uncounted(lacking.begin(), lacking.end());
  const bool copies = !shares_blocks(folder_);
  Bytes needed;
  for (const sync::Entry& entry : manifest.entries) {
    if (copies) needed += entry.bytes;
    for (std::size_t chunk = 0; chunk < entry.chunks.size(); ++chunk) {
      if (uncounted.erase(entry.chunks[chunk]) > 0) needed += sync::chunk_size(entry.bytes, chunk);
    }
  }
  const Bytes free = free_bytes_(folder_);
  if (needed == Bytes() || needed <= free - free_bytes_min) return {};
  return failed("the folder that the job ships takes " + format_bytes(needed) +
                " on the node, whose disk has " + format_bytes(free) + " left");
}

// Nothing that goes wrong with one folder may end the agent.
Result<std::string> Shipped::tried(Task& task) {
  try {
    return lay_out(task);
  } catch (const std::exception& why) {
    return failed(why.what());
  }
}

Result<std::string> Shipped::lay_out(Task& task) {
  const std::string& manifest_hash = task.manifest;
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  net::Client client(controller_, token_);
  if (!blobs_.has(manifest_hash)) {
    if (auto fetched = fetch(client, manifest_hash, task); !fetched) return std::move(fetched).error();
  }
  auto encoded = blobs_.get(manifest_hash);
  if (!encoded) return std::move(encoded).error();
  if (!*encoded) return failed("blob " + manifest_hash + " was removed just now");
  auto manifest = sync::decode(**encoded);
  if (!manifest) return std::move(manifest).error();
  if (auto room = check_room(*manifest); !room) {
    task.hindrance = keeper::Hindrance::job;
    return std::move(room).error();
  }
  for (const auto& hash : sync::missing(*manifest, blobs_)) {
    if (auto fetched = fetch(client, hash, task); !fetched) return std::move(fetched).error();
  }
  // A folder that is already there may be what a power cut left of it: it is made again.
  std::string target = path_of(task.name);
  if (task.unwanted) return failed("nobody wants it any more");
  if (auto removed = files::remove_folder(target); !removed) return std::move(removed).error();
  if (auto made = sync::materialise(*manifest, blobs_, target); !made) return std::move(made).error();
  return target;
}

}  // namespace tutti::agent
