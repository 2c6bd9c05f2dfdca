// What a rank of an earlier agent has left in its folder, read by the next one. The folders are the ranks' to
// spoil and may be on a disk that does not answer: they are read by other threads than the one that waits for
// them, and it does not wait for long.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "control/cluster/model.hpp"
#include "node/agent/rank_end.hpp"
#include "node/keeper/rank_key.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {

struct LeftRank {
  bool over = false;   // its end is acknowledged, and nothing of it lives
  Instant changed_at;  // of such a one
  bool runs = false;
  bool stopped = false;  // it was marked before it was shut down with its node
  rank::ShimProcess shim;
  bool shim_known = false;  // there was one, and its folder tells which
  std::string cgroup;
  std::optional<Duration> grace;  // nothing if its specification cannot be read
  std::optional<RankEnd> end;
};

// For the shim of a rank whose grace period is not known to end it: too short a time would cost the rank its
// work, and who does not want to wait ends it at once.
constexpr Duration unknown_grace = 30s;

// Takes the rank over: one that has not started will not start any more. `hold` is the name of the cgroup
// that it should have.
LeftRank read_left(const std::string& folder, const std::string& hold);

// When something in the folder was made or removed last; zero if it cannot be known.
Instant changed_at(const std::string& folder);

// What has been read so far. Any thread.
class LeftRanks {
 public:
  void put(const keeper::RankKey& key, LeftRank left);
  // Waits until so many are there, or none has come for this long: those that are there.
  std::map<keeper::RankKey, LeftRank> wait(std::size_t count, Duration patience);

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<keeper::RankKey, LeftRank> ranks_;
};

}  // namespace tutti::agent
