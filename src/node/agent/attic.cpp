#include "node/agent/attic.hpp"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/id.hpp"
#include "base/log/log.hpp"

namespace tutti::agent {
namespace {

constexpr const char* marks_folder = "/.ended";
constexpr std::size_t checkpoints_per_round_max = 100;
constexpr std::int64_t block_bytes = 512;  // as stat() counts them

thread_local std::int64_t counted_bytes = 0;

int count_one(const char*, const struct stat* status, int, FTW*) {
  counted_bytes += std::int64_t{status->st_blocks} * block_bytes;
  return 0;
}

// What the folder takes on the disk, with all that it holds.
Bytes bytes_of(const std::string& folder) {
  constexpr int descriptors = 16;
  counted_bytes = 0;
  static_cast<void>(nftw(folder.c_str(), count_one, descriptors, FTW_PHYS));
  return Bytes(counted_bytes);
}

void remove_tree(const std::string& folder) {
  if (auto removed = files::remove_folder(folder); !removed) log::warning("{}", removed.error().text());
}

bool is_over(Duration age, Duration age_max) { return age_max > Duration::zero() && age > age_max; }

}  // namespace

void AtticShelves::put(const std::string& folder, Instant ended_at) {
  kept_.push_back({folder, bytes_of(folder), ended_at});
  bytes_ += kept_.back().bytes;
}

void AtticShelves::tidy(Instant now) {
  while (!kept_.empty()) {
    const Kept& oldest = kept_.front();
    const bool too_much = kept_.size() > kept_ranks_max || bytes_ > options_.logs_bytes_max;
    if (!too_much && !is_over(now - oldest.ended_at, options_.logs_age_max)) break;
    remove_tree(oldest.folder);
    bytes_ -= oldest.bytes;
    kept_.pop_front();
  }
  tidy_checkpoints(now);
}

std::string AtticShelves::mark_of(const std::string& job) const {
  return options_.checkpoints + marks_folder + "/" + job;
}

// Most jobs write none, and an empty folder for each of them would be millions in a year. Only the end of the
// job leaves a mark, and only a folder with a mark is ever removed with what it holds.
void AtticShelves::job_ended(sched::JobId job) const {
  const std::string folder = options_.checkpoints + "/" + job.text();
  if (::rmdir(folder.c_str()) == 0 || errno != ENOTEMPTY) return;
  auto marked = files::make_folder(options_.checkpoints + marks_folder, 0700);
  if (marked) marked = files::replace_file(mark_of(job.text()), "");
  if (!marked) log::warning("{}", marked.error().text());
}

void AtticShelves::tidy_checkpoints(Instant now) const {
  if (options_.checkpoints_age_max == Duration::zero()) return;
  const auto marks = files::list_folder(options_.checkpoints + marks_folder);
  if (!marks || !*marks) return;
  std::size_t removed = 0;
  for (const std::string& job : **marks) {
    if (removed == checkpoints_per_round_max) return;
    struct stat status {};
    if (!parse_id_number(job) || ::lstat(mark_of(job).c_str(), &status) != 0) continue;
    const Instant ended_at(std::chrono::seconds(status.st_mtim.tv_sec));
    if (!is_over(now - ended_at, options_.checkpoints_age_max)) continue;
    remove_tree(options_.checkpoints + "/" + job);
    ::unlink(mark_of(job).c_str());
    ++removed;
  }
}

Attic::Attic(AtticOptions options) : shelves_(std::move(options)), thread_([this] { run(); }) {}

Attic::~Attic() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void Attic::leave(std::function<void()> word) {
  {
    const std::lock_guard lock(mutex_);
    words_.push_back(std::move(word));
  }
  woken_.notify_one();
}

void Attic::put(std::string folder, Instant ended_at) {
  leave([this, folder = std::move(folder), ended_at] { shelves_.put(folder, ended_at); });
}

void Attic::job_ended(sched::JobId job) {
  leave([this, job] { shelves_.job_ended(job); });
}

// What it is told in the meantime is done before it looks round: not a look for each word.
void Attic::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_.wait_for(lock, attic_every, [this] { return stopping_ || !words_.empty(); });
    while (!words_.empty() && !stopping_) {
      const auto word = std::move(words_.front());
      words_.pop_front();
      lock.unlock();
      word();
      lock.lock();
    }
    lock.unlock();
    shelves_.tidy(now_on_the_wall());
    kept_bytes_ = shelves_.logs_bytes().count();
    lock.lock();
  }
}

}  // namespace tutti::agent
