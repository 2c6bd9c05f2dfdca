// Looks after what lies beside the store and would grow for ever: shipped blobs that no unfinished job needs
// go when they are old or too many, or when the disk is short, of which the store needs its part. Also knows
// how much room all of it takes. A thread of its own: the disk may be slow, and nobody waits for this.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/clock/clock.hpp"
#include "control/controller/core.hpp"
#include "control/wire/views.hpp"
#include "net/sync/blobs.hpp"

namespace tutti::controller {

constexpr Duration kept_blobs_age_default = 7 * 24h;
constexpr Bytes kept_blobs_default = gib(100);
// With so many nothing more is taken. Of those that nobody needs half as many stay.
constexpr std::size_t blobs_count_max = 2 * sync::blobs_max;
// A folder is shipped before its job is submitted: what was used so lately may belong to such a job.
constexpr Duration blobs_age_min = 1h;
// Where the disk is short, this has to do.
constexpr Duration blobs_age_min_short = 10min;
constexpr Duration janitor_every = 5min;
// Somebody who looks at the store's size wants to see it grow.
constexpr Duration store_weighed_every = 10s;
// How often it looks for room because somebody ships something.
constexpr Duration room_made_every = 10s;

struct DiskRoom {
  Bytes free;
  Bytes all;
};
// What blobs leave free for the store: a twentieth, within bounds that are smaller on a small disk.
Bytes store_room(const DiskRoom& disk);

struct JanitorOptions {
  std::string folder;  // of the controller
  // The disk of that folder, nothing if that is not known; null: the system is asked.
  std::function<std::optional<DiskRoom>()> disk = nullptr;
  // Null: the date, where a clock that is wrong for a moment costs nothing.
  std::function<Instant()> date = nullptr;
  Bytes blobs_bytes_max = kept_blobs_default;
  std::size_t blobs_count = blobs_count_max;
  Duration blobs_age_max = kept_blobs_age_default;  // since they were used last; 0: for ever
};

class Janitor {
 public:
  Janitor(Core& core, JanitorOptions options);
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;
  ~Janitor() { stop(); }

  // The core must have been started, and may be stopped only after this.
  void start();
  void stop();

  // One round; the thread makes one from time to time.
  void clean();
  void weigh_store();

  // May a blob of so many bytes be stored? Where that would leave too little to the store, what nobody needs
  // goes first. Any thread that may wait.
  Result<> make_room(Bytes more);
  // One that was not there has been stored, of so many bytes.
  void stored(Bytes more);

  // As it was found last; the retention of jobs is the core's. Any thread.
  wire::Kept kept() const;

 private:
  void run();
  // The blobs of folders whose jobs have not ended; nothing if that cannot be known now.
  std::optional<std::set<std::string>> needed() const;
  std::optional<std::set<std::string>> manifests() const;
  // There are as many as may be.
  bool is_crowded() const;
  // How much less there must be, so that this much more leaves the store its room.
  Bytes missing(Bytes more) const;
  // Of blobs that nobody needs, so many bytes if there are.
  void clean(Bytes at_least);

  Core& core_;
  const JanitorOptions options_;
  sync::BlobStore blobs_;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;
  Bytes store_bytes_;
  sync::BlobStore::Held blobs_held_;
  std::chrono::steady_clock::time_point room_made_;  // when it was last looked for
  std::mutex cleaning_;                              // one at a time
  CalmDate date_;                                    // of whoever cleans
  std::thread thread_;
};

}  // namespace tutti::controller
