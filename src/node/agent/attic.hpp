// What ranks and jobs leave on a node when they are over: the folders of ended ranks with their logs, and the
// folders for checkpoints. Kept for a while, within bounds. Both touch trees that a job has made, which may
// take any time: the work is done on a thread of its own, and the calls only leave a word for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/time.hpp"
#include "base/units.hpp"
#include "control/sched/sched.hpp"

namespace tutti::agent {

constexpr std::size_t kept_ranks_max = 2000;  // their logs stay readable until then
constexpr Bytes kept_logs_default = gib(20);
constexpr Duration kept_logs_age_default = 14 * 24h;
constexpr Duration attic_every = 1min;

struct AtticOptions {
  std::string checkpoints;  // a folder for each job
  Bytes logs_bytes_max = kept_logs_default;
  Duration logs_age_max = kept_logs_age_default;  // since the end of the rank; 0: for ever
  Duration checkpoints_age_max{};                 // since the end of the job; 0: for ever
};

// Without a thread: whoever calls it waits.
class AtticShelves {
 public:
  explicit AtticShelves(AtticOptions options) : options_(std::move(options)) {}

  // The folder of a rank that has ended, after all that were put there before.
  void put(const std::string& folder, Instant ended_at);
  // The job has ended for good: if its folder for checkpoints is empty it goes at once, else its age counts
  // from now on.
  void job_ended(sched::JobId job) const;
  // Removes what is not kept any longer.
  void tidy(Instant now);

  Bytes logs_bytes() const { return bytes_; }
  std::size_t folders() const { return kept_.size(); }

 private:
  struct Kept {
    std::string folder;
    Bytes bytes;
    Instant ended_at;
  };

  void tidy_checkpoints(Instant now) const;
  std::string mark_of(const std::string& job) const;

  AtticOptions options_;
  std::deque<Kept> kept_;  // oldest first
  Bytes bytes_;
};

class Attic {
 public:
  explicit Attic(AtticOptions options);
  Attic(const Attic&) = delete;
  Attic& operator=(const Attic&) = delete;
  ~Attic();

  // From the agent's loop; they return at once.
  void put(std::string folder, Instant ended_at);
  void job_ended(sched::JobId job);
  Bytes kept() const { return Bytes(kept_bytes_.load()); }

 private:
  void run();
  void leave(std::function<void()> word);

  AtticShelves shelves_;  // the thread's own
  std::atomic<std::int64_t> kept_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> words_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::agent
