#include "node/agent/attic.hpp"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "node/rank/checkpoints.hpp"

namespace tutti::agent {
namespace {

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
  put(folder, ended_at, bytes_of(folder));
}

void AtticShelves::put(const std::string& folder, Instant ended_at, Bytes bytes) {
  kept_.push_back({folder, bytes, ended_at});
  bytes_ += bytes;
}

// Out of the way at once, so that a later agent does not take what is left of it for something whole.
void AtticShelves::remove_rank(const std::string& folder) {
  if (options_.removed.empty()) return remove_tree(folder);
  const std::string target = options_.removed + "/" + folder.substr(folder.rfind('/') + 1) + "." +
                             std::to_string(::getpid()) + ".attic." + std::to_string(++removed_);
  if (!files::make_folder(options_.removed, 0700) || ::rename(folder.c_str(), target.c_str()) != 0) return;
  remove_tree(target);
}

void AtticShelves::tidy(Instant now) {
  tidy_logs(now);
  tidy_checkpoints(now);
}

void AtticShelves::tidy_logs(Instant now) {
  while (!kept_.empty() && !closed_) {
    const Kept& oldest = kept_.front();
    const bool too_much = kept_.size() > kept_ranks_max || bytes_ > options_.logs_bytes_max;
    if (!too_much && !is_over(now - oldest.ended_at, options_.logs_age_max)) break;
    remove_rank(oldest.folder);
    bytes_ -= oldest.bytes;
    kept_.pop_front();
  }
}

// Jobs of two clusters have the same numbers, and may share the folder.
std::string AtticShelves::checkpoints_of(const std::string& cluster) const {
  return options_.checkpoints + (cluster.empty() ? "" : "/" + cluster);
}

void AtticShelves::job_ended(sched::JobId job, const std::string& cluster) const {
  if (auto ended = rank::end_checkpoints(checkpoints_of(cluster) + "/" + job.text()); !ended)
    log::warning("{}", ended.error().text());
}

void AtticShelves::tidy_checkpoints(Instant now, const std::string& cluster) const {
  if (options_.checkpoints_age_max > Duration::zero())
    rank::remove_old_checkpoints(checkpoints_of(cluster), now - options_.checkpoints_age_max);
}

Attic::Attic(net::Loop& loop, AtticOptions options)
    : options_(std::move(options)),
      shelves_(std::make_shared<AtticShelves>(options_)),
      sizes_(loop, LaneLimits{.threads_max = 1}),
      logs_(loop, 1),
      checkpoints_(loop, 1),
      timer_(loop.every(attic_every, [this] {
        tidy_logs();
        tidy_checkpoints();
      })) {}

void Attic::put(const std::string& folder, Instant ended_at) {
  sizes_.run(folder, [this, shelves = shelves_, folder, ended_at]() -> Lane::Then {
    return [this, shelves, folder, ended_at, bytes = bytes_of(folder)] {
      put(shelves, folder, ended_at, bytes);
    };
  });
}

void Attic::put(const Shelves& shelves, const std::string& folder, Instant ended_at, Bytes bytes) {
  logs_.run([this, shelves, folder, ended_at, bytes, now = date_.now()]() -> Lane::Then {
    shelves->put(folder, ended_at, bytes);
    shelves->tidy_logs(now);
    return [this, shelves, bytes = shelves->logs_bytes()] { count(shelves, bytes); };
  });
}

void Attic::clear() {
  shelves_->close();
  shelves_ = std::make_shared<AtticShelves>(options_);
  kept_ = {};
}

void Attic::job_ended(sched::JobId job) {
  checkpoints_.run([shelves = shelves_, job, cluster = cluster_]() -> Lane::Then {
    shelves->job_ended(job, cluster);
    return {};
  });
  tidy_checkpoints();
}

void Attic::tidy_logs() {
  if (logs_.under_way() != 0) return;  // each does it
  logs_.run([this, shelves = shelves_, now = date_.now()]() -> Lane::Then {
    shelves->tidy_logs(now);
    return [this, shelves, bytes = shelves->logs_bytes()] { count(shelves, bytes); };
  });
}

// Not a look for each job that ends.
void Attic::tidy_checkpoints() {
  if (std::exchange(tidying_checkpoints_, true)) return;
  checkpoints_.run([this, shelves = shelves_, cluster = cluster_, now = date_.now()]() -> Lane::Then {
    shelves->tidy_checkpoints(now, cluster);
    return [this] { tidying_checkpoints_ = false; };
  });
}

void Attic::count(const Shelves& shelves, Bytes bytes) {
  if (shelves == shelves_) kept_ = bytes;
}

}  // namespace tutti::agent
