// What ranks and jobs leave on a node when they are over: the folders of ended ranks with their logs, and the
// folders for checkpoints. Kept for a while, within bounds. Both touch trees that a job has made, which may
// take any time: the work is done on lanes, and the loop only leaves a word for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock/clock.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "control/sched/sched.hpp"
#include "net/http/loop.hpp"
#include "node/agent/lane.hpp"

namespace tutti::agent {

constexpr Bytes kept_logs_default = gib(20);
// An agent that starts looks at each of them before it joins, which is to take a part of a lease: some 0.1 ms
// each
constexpr std::size_t kept_logs_ranks_default = 10'000;
constexpr Duration kept_logs_age_default = 14 * 24h;
constexpr Duration attic_every = 1min;

// A rank's log and what else its shim and its agent write; with more, what the rank has put there goes.
constexpr Bytes kept_rank_bytes_max = mib(96);

struct AtticOptions {
  std::string checkpoints;  // a folder for each job, below one for its cluster
  // Nobody else has it: what earlier clusters left in it is this agent's to judge, too.
  bool own_checkpoints = false;
  std::string folder = {};   // of the agent, in which it puts earlier clusters aside; "": it does not
  std::string removed = {};  // folders of ranks pass through it on their way out; "": they go where they are
  Bytes logs_bytes_max = kept_logs_default;
  std::size_t logs_ranks_max = kept_logs_ranks_default;
  Duration logs_age_max = kept_logs_age_default;  // since the end of the rank; 0: for ever
  Duration checkpoints_age_max{};                 // since the end of the job; 0: for ever
};

// The folder of a rank that has ended: whose it was, "" where that is not known, and what it takes.
struct Weighed {
  std::string owner;
  Bytes bytes;
};
// Of a folder above `kept_rank_bytes_max` only what tutti wrote is left then.
Weighed weigh(const std::string& folder);

// Without a thread: whoever calls it waits. Logs and checkpoints have nothing in common: a thread for each.
class AtticShelves {
 public:
  explicit AtticShelves(AtticOptions options) : options_(std::move(options)) {}

  // The folder of a rank that has ended, behind all that ended before it.
  void put(const std::string& folder, Instant ended_at);
  void put(const std::string& folder, Instant ended_at, const Weighed& weighed);
  // The job has ended for good: if its folder for checkpoints is empty it goes at once, else its age counts
  // from now on.
  void job_ended(sched::JobId job, const std::string& cluster = "") const;
  // Removes what is not kept any longer.
  void tidy(Instant now);
  void tidy_logs(Instant now);
  // One round, behind those jobs, by cluster; returns those that were tried last.
  using Tried = std::map<std::string, std::string>;
  Tried tidy_checkpoints(Instant now, const std::string& cluster = "", const Tried& tried_last = {}) const;
  // The highest id of a job of the cluster that has a folder for checkpoints; nothing if none ever had.
  Result<std::optional<std::uint64_t>> last_saved(const std::string& cluster) const;
  // What of them could not be removed, where it is now: each is told once.
  std::vector<std::string> take_staying() { return std::exchange(staying_, {}); }
  // From any thread: nothing is removed any more.
  void close() { closed_ = true; }

  Bytes logs_bytes() const { return bytes_; }
  std::size_t folders() const { return folders_; }

 private:
  struct Kept {
    std::string folder;
    Bytes bytes;
    Instant ended_at;
  };
  struct Owner {
    std::deque<Kept> kept;  // oldest first; never empty
    Bytes bytes;
  };
  using Owners = std::map<std::string, Owner>;

  // The end if nothing has to go.
  Owners::iterator who_loses_one(Instant now);
  std::string checkpoints_of(const std::string& cluster) const;
  std::vector<std::string> clusters_to_judge(const std::string& cluster) const;
  void remove_rank(const std::string& folder);

  AtticOptions options_;
  Owners owners_;
  std::size_t folders_ = 0;  // of all of them
  Bytes bytes_;
  std::vector<std::string> staying_;
  std::uint64_t removed_ = 0;
  std::atomic<bool> closed_ = false;
};

class Attic {
 public:
  // The highest id of a job of that cluster whose folder for checkpoints is there: once for each cluster, as
  // soon as the disk has told.
  using Saved = std::function<void(const std::string& cluster, std::uint64_t job)>;

  Attic(net::Loop& loop, AtticOptions options, Saved saved = {});
  Attic(const Attic&) = delete;
  Attic& operator=(const Attic&) = delete;

  // From the agent's loop; they return at once.
  void belong_to(const std::string& cluster);
  // Nothing: when it ended the folder tells.
  void put(const std::string& folder, std::optional<Instant> ended_at);
  // The ranks of earlier clusters: they are kept as all others are, within the same bounds.
  void keep_aside();
  // The folders that were put there are somewhere else now, and not its own any more.
  void clear();
  void job_ended(sched::JobId job);
  // What to do with what is still to be removed.
  void on_staying(std::function<void(const std::string& path)> stays) { stays_ = std::move(stays); }
  Bytes kept() const { return kept_; }

 private:
  using Shelves = std::shared_ptr<AtticShelves>;

  void put(const Shelves& shelves, const std::string& folder, Instant ended_at, const Weighed& weighed);
  void tidy_logs();
  void tidy_checkpoints();
  void look_for_saved();
  void looked_for_saved(const std::string& cluster, const Result<std::optional<std::uint64_t>>& last);
  // What tidy_logs() has come to, for the loop.
  Lane::Then tidied(const Shelves& shelves);

  AtticOptions options_;
  Shelves shelves_;
  std::string cluster_;
  Bytes kept_;
  bool tidying_checkpoints_ = false;
  AtticShelves::Tried tried_last_;  // the jobs whose old checkpoints were to be removed
  Saved saved_;
  std::function<void(const std::string& path)> stays_;
  std::string saved_known_;   // the cluster of which that was told
  std::string saved_unread_;  // why it could not be read the last time
  bool looking_for_saved_ = false;
  CalmDate date_;
  // The folders of ranks are on the node's disk, those for checkpoints on one that all share: the one does
  // not wait for the other.
  Lane sizes_;  // of the folders of ranks: one that does not answer is left out
  Lane logs_;
  Lane checkpoints_;
  std::shared_ptr<net::Loop::Handle> timer_;
};

}  // namespace tutti::agent
