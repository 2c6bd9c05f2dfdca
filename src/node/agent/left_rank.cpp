#include "node/agent/left_rank.hpp"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "node/agent/rank_end.hpp"
#include "node/agent/rank_start.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/leftovers.hpp"

namespace tutti::agent {

Instant changed_at(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return {};
  return Instant(std::chrono::seconds(status.st_mtim.tv_sec) +
                 std::chrono::nanoseconds(status.st_mtim.tv_nsec));
}

namespace {

// One that has gone cannot be asked, and nobody is ended for it.
bool is_its_own(const std::optional<rank::ShimProcess>& shim, const std::string& folder) {
  return shim && (rank::is_gone(*shim) || !rank::is_anothers(*shim, folder));
}

}  // namespace

LeftRank read_left(const std::string& folder, const std::string& hold) {
  LeftRank left;
  left.cgroup = hold;
  if (std::error_code unknown; std::filesystem::exists(acknowledged_mark(folder), unknown)) {
    // The mark is in the rank's hands, and so is all else in its folder.
    const auto shim = rank::read_shim(folder);
    const bool lives =
        (shim && is_its_own(*shim, folder) && !rank::is_gone(**shim)) || rank::Hold(hold).exists();
    if (!lives) {
      left.over = true;
      left.changed_at = changed_at(folder);
      return left;
    }
  }
  const auto shim = rank::take_over(folder);
  left.shim_known = shim && is_its_own(*shim, folder);
  if (left.shim_known) left.shim = **shim;
  // Not the cgroup that it names: it lies in the rank's folder, and who is held is killed.
  if (const auto spec = rank::read_spec(folder)) left.grace = spec->grace;
  left.end = end_in(folder);
  left.runs = left.shim_known && !rank::is_gone(left.shim) && !left.end;
  left.stopped = rank::is_stopped(folder);
  if (left.runs) rank::unmark_stopped(folder);
  // One that has ended meanwhile may have said how.
  if (!left.runs && !left.end) left.end = end_in(folder);
  return left;
}

void LeftRanks::put(const keeper::RankKey& key, LeftRank left) {
  const std::lock_guard lock(mutex_);
  ranks_.insert_or_assign(key, std::move(left));
  came_.notify_all();
}

std::map<keeper::RankKey, LeftRank> LeftRanks::wait(std::size_t count, Duration patience) {
  std::unique_lock lock(mutex_);
  for (std::size_t seen = ranks_.size(); seen < count; seen = ranks_.size()) {
    if (!came_.wait_for(lock, patience, [&] { return ranks_.size() > seen; })) break;
  }
  return ranks_;
}

}  // namespace tutti::agent
