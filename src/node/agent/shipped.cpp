#include "node/agent/shipped.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <limits>
#include <set>
#include <system_error>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/files/names.hpp"
#include "net/sync/chunks.hpp"
#include "net/sync/digest.hpp"
#include "net/sync/materialise.hpp"
#include "node/agent/health.hpp"
#include "node/agent/isolation.hpp"

namespace tutti::agent {
namespace {

constexpr Bytes cache_bytes_max = sync::folder_bytes_max;
// A controller that is being restarted, or that a thousand nodes ask at once, is no fault of this node's.
constexpr Duration fetch_patience = 60s;
constexpr Duration fetch_pause_min = 100ms;
constexpr Duration fetch_pause_max = 2s;

constexpr DiskRoom no_end_of_room{.bytes = sync::most_bytes,
                                  .files = std::numeric_limits<std::int64_t>::max() / 2};

// Whatever it holds, a file or a folder takes whole blocks of a disk.
constexpr std::int64_t block_bytes = 4096;
Bytes in_blocks(Bytes content) {
  return Bytes((content.count() + block_bytes - 1) / block_bytes * block_bytes);
}

bool is_none(const DiskRoom& room) { return room.bytes <= Bytes() && room.files <= 0; }

DiskRoom lacking(const DiskRoom& needed, const DiskRoom& free) {
  return {.bytes = std::max(Bytes(), needed.bytes - free.bytes),
          .files = std::max<std::int64_t>(0, needed.files - free.files)};
}

// An error has no number: what the system says of it stands at its end.
bool tells_of_a_full_disk(const Error& error) {
  return std::ranges::any_of(std::array{ENOSPC, EDQUOT}, [&](int number) {
    return error.message().ends_with(failed_errno("", number).message());
  });
}

Error no_room(const DiskRoom& needed, const DiskRoom& free, const DiskRoom& lacking) {
  const bool of_bytes = lacking.bytes > Bytes();
  return failed("the folder that the job ships takes " +
                (of_bytes ? format_bytes(needed.bytes) : std::to_string(needed.files) + " files") +
                " on the node, whose disk has " +
                (of_bytes ? format_bytes(free.bytes) : std::to_string(free.files)) + " left");
}

bool may_be_asked_again(const Result<net::Response>& answer) {
  return !answer || answer->status == 429 || answer->status == 503;
}

// The folder itself last: until then nobody but this agent has anything in it.
Result<> hand_over(const sync::Manifest& manifest, const std::string& folder, const rank::Account& account) {
  for (const sync::Entry& entry : manifest.entries) {
    const std::string path = folder + "/" + entry.path;
    if (::lchown(path.c_str(), account.uid, account.gid) != 0)
      return failed_errno("cannot hand over " + files::shown(path), errno);
  }
  if (::lchown(folder.c_str(), account.uid, account.gid) != 0)
    return failed_errno("cannot hand over " + folder, errno);
  return {};
}

// Where files share blocks the folder takes none of its own.
bool shares_blocks(const std::string& folder) {
  struct statfs disk {};
  return ::statfs(folder.c_str(), &disk) == 0 &&
         (disk.f_type == XFS_SUPER_MAGIC || disk.f_type == BTRFS_SUPER_MAGIC);
}

}  // namespace

DiskRoom free_room_in(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return no_end_of_room;
  // Where files are not counted, there is no end of them.
  return {.bytes = Bytes(static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize)),
          .files = disk.f_files == 0 ? no_end_of_room.files : static_cast<std::int64_t>(disk.f_favail)};
}

Shipped::Shipped(net::Target controller, std::string token, const std::string& folder, FreeRoom free_room)
    : controller_(std::move(controller)),
      token_(std::move(token)),
      folder_(folder + "/work"),
      free_room_(std::move(free_room)),
      blobs_(folder + "/blobs") {}

void Shipped::prepare(const std::string& user, const std::string& manifest, const std::string& name,
                      Done done, std::shared_ptr<const rank::Isolation> isolation) {
  const auto task = std::make_shared<Task>();
  task->user = user;
  task->manifest = manifest;
  task->name = name;
  task->done = std::move(done);
  task->isolation = std::move(isolation);
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
  auto next = waiting_.end();
  std::uint64_t next_turn = 0;
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const Task& task = **at;
    // One thread is always left for the others.
    if (working_.contains(task.name) || working_for(task.user) + 1 >= shipped_threads_max) continue;
    const auto last = turns_.find(task.user);
    const std::uint64_t turn = last == turns_.end() ? 0 : last->second;
    if (next != waiting_.end() && turn >= next_turn) continue;
    next = at;
    next_turn = turn;
  }
  if (next == waiting_.end()) return nullptr;
  TaskPointer task = *next;
  waiting_.erase(next);
  working_[task->name] = task;
  turns_[task->user] = ++turn_;
  return task;
}

std::size_t Shipped::working_for(const std::string& user) const {
  return static_cast<std::size_t>(std::count_if(
      working_.begin(), working_.end(), [&](const auto& working) { return working.second->user == user; }));
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
    ++ended_;
    if (working_.empty() && waiting_.empty()) turns_.clear();
    // While somebody lays out, what that one needs has to stay.
    const bool alone = working_.empty();
    if (alone) trimming_ = true;
    lock.unlock();
    task->done(std::move(folder), task->hindrance);
    if (alone) static_cast<void>(blobs_.trim(cache_bytes_max));
    lock.lock();
    if (alone) trimming_ = false;
    woken_.notify_all();  // who waited for that, for its room, or for one of the same name
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
  if (content->status == 404) {
    // Its disk may be away for now. No other node gets it either, and then a person has to look.
    task.hindrance = keeper::Hindrance::job;
    return failed("the controller does not have it").within("shipped file " + hash);
  }
  if (content->status != 200)
    return failed("the controller answered with HTTP status " + std::to_string(content->status))
        .within("shipped file " + hash);
  auto kept = blobs_.put(hash, as_bytes(content->body));
  if (kept) count_fetched(Bytes(static_cast<std::int64_t>(content->body.size())), task);
  return kept;
}

// What comes in and what is laid out.
DiskRoom Shipped::needed_by(const sync::Manifest& manifest) const {
  const auto missing = sync::missing(manifest, blobs_);
  std::set<std::string> uncounted(missing.begin(), missing.end());
  const bool copies = !shares_blocks(folder_);
  DiskRoom needed{.bytes = Bytes(block_bytes), .files = 1};
  for (const sync::Entry& entry : manifest.entries) {
    const bool is_file = entry.kind == sync::Entry::Kind::file;
    ++needed.files;
    if (copies || !is_file) needed.bytes += in_blocks(is_file ? entry.bytes : Bytes(1));
    for (std::size_t chunk = 0; chunk < entry.chunks.size(); ++chunk) {
      if (uncounted.erase(entry.chunks[chunk]) == 0) continue;
      needed.bytes += in_blocks(sync::chunk_size(entry.bytes, chunk));
      ++needed.files;
    }
  }
  return needed;
}

Shipped::Lack Shipped::lack_of(const DiskRoom& needed, const Task& by) {
  DiskRoom free = free_room_(folder_);
  free.bytes -= free_bytes_min;
  free.files -= static_cast<std::int64_t>(free_files_min);
  // What others have brought into the cache goes when they are done, if it is needed.
  DiskRoom alone = free;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, task] : working_) {
    if (task.get() == &by) continue;
    free.bytes -= task->promised.bytes;
    free.files -= task->promised.files;
    alone.bytes += task->fetched.bytes;
    alone.files += task->fetched.files;
  }
  return {.now = lacking(needed, free), .alone = lacking(needed, alone)};
}

void Shipped::trim_for(const DiskRoom& lacking) {
  struct Trimming {
    ~Trimming() {
      const std::lock_guard lock(shipped.mutex_);
      shipped.trimming_ = false;
      shipped.woken_.notify_all();
    }
    Shipped& shipped;
  };
  std::vector<TaskPointer> under_way;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, other] : working_) under_way.push_back(other);
    trimming_ = true;
  }
  const Trimming until_the_end{*this};
  std::set<std::string> relied_on;
  for (const TaskPointer& other : under_way) {
    relied_on.insert(other->manifest);
    relied_on.insert(other->chunks.begin(), other->chunks.end());
  }
  const auto held = blobs_.trim({.bytes_max = cache_bytes_max, .keep = &relied_on});
  const auto files = static_cast<std::size_t>(lacking.files);
  // Where all of it is not enough, the next job had better find it.
  if (held && held->bytes >= lacking.bytes && held->count >= files)
    static_cast<void>(blobs_.trim(
        {.bytes_max = held->bytes - lacking.bytes, .count_max = held->count - files, .keep = &relied_on}));
}

void Shipped::count_fetched(Bytes content, Task& task) {
  const DiskRoom taken{.bytes = in_blocks(content), .files = 1};
  const std::lock_guard lock(mutex_);
  task.fetched.bytes += taken.bytes;
  task.fetched.files += taken.files;
  task.promised.bytes -= std::min(task.promised.bytes, taken.bytes);
  task.promised.files -= std::min(task.promised.files, taken.files);
}

// Before any of it is there: a folder that is too large for the disk of this node must not fill it and take
// the node from all others, and neither must several that fit one by one.
Result<> Shipped::take_room(const sync::Manifest& manifest, Task& task) {
  for (;;) {
    std::unique_lock lock(mutex_);
    const std::uint64_t ended = ended_;
    lock.unlock();
    std::unique_lock cache(cache_mutex_);
    for (const sync::Entry& entry : manifest.entries)
      task.chunks.insert(task.chunks.end(), entry.chunks.begin(), entry.chunks.end());
    const DiskRoom needed = needed_by(manifest);
    Lack lack = lack_of(needed, task);
    if (!is_none(lack.now)) {
      trim_for(lack.now);
      lack = lack_of(needed, task);
    }
    if (is_none(lack.now)) {
      lock.lock();
      task.promised = needed;
      return {};
    }
    task.chunks.clear();
    if (!is_none(lack.alone)) {
      task.hindrance = keeper::Hindrance::job;
      return no_room(needed, free_room_(folder_), lack.alone);
    }
    cache.unlock();
    lock.lock();
    woken_.wait(lock, [&] { return stopping_ || task.unwanted || ended_ != ended; });
    if (stopping_ || task.unwanted) return failed("nobody wants it any more");
  }
}

// Nothing that goes wrong with one folder may end the agent.
Result<std::string> Shipped::tried(Task& task) {
  try {
    auto folder = lay_out(task);
    if (folder || !tells_of_a_full_disk(folder.error())) return folder;
    // Whatever was counted, somebody has taken the room meanwhile. The disk has it again, for all others.
    task.hindrance = keeper::Hindrance::job;
    const std::lock_guard cache(cache_mutex_);
    task.chunks.clear();
    trim_for(task.fetched);
    return folder;
  } catch (const std::exception& why) {
    return failed(why.what());
  }
}

Result<std::string> Shipped::lay_out(Task& task) {
  const std::string& manifest_hash = task.manifest;
  // Not the folder of the agent, which may have been removed with all its home.
  if (auto made = files::make_folder(folder_, 0777); !made) return std::move(made).error();
  net::Client client(controller_, token_);
  if (!blobs_.has(manifest_hash)) {
    if (auto fetched = fetch(client, manifest_hash, task); !fetched) return std::move(fetched).error();
  }
  auto encoded = blobs_.get(manifest_hash);
  if (!encoded) return std::move(encoded).error();
  if (!*encoded) return failed("blob " + manifest_hash + " was removed just now");
  auto manifest = sync::decode(**encoded);
  if (!manifest) return std::move(manifest).error();
  if (auto room = take_room(*manifest, task); !room) return std::move(room).error();
  for (const auto& hash : sync::missing(*manifest, blobs_)) {
    if (auto fetched = fetch(client, hash, task); !fetched) return std::move(fetched).error();
  }
  // A folder that is already there may be what a power cut left of it: it is made again.
  std::string target = path_of(task.name);
  if (task.unwanted) return failed("nobody wants it any more");
  if (auto removed = files::remove_folder(target); !removed) return std::move(removed).error();
  const auto still_wanted = [&task] { return !task.unwanted; };
  if (auto made = sync::materialise(*manifest, blobs_, target, {}, still_wanted); !made)
    return std::move(made).error();
  if (task.isolation) {
    auto handed = make_passage(folder_);
    if (handed) handed = hand_over(*manifest, target, task.isolation->account);
    if (!handed) return std::move(handed).error();
  }
  return target;
}

}  // namespace tutti::agent
