// Contents on disk, each in a file named by its hash: "ab/cdef…" below the store's folder, readable by the
// owner only. Any thread, and any number of processes may share a store: a blob appears whole or not at all.
// A blob outlives a power cut only after keep(). Every read is verified, and a blob that a crash has damaged
// is dropped, so that it counts as missing and is sent again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace tutti::sync {

// What a blob takes of a disk, and of the memory of those who look after them, however little is in it.
constexpr Bytes blob_room_min = Bytes(4096);
constexpr Bytes room_of(Bytes content) { return std::max(content, blob_room_min); }
// So many are left by trim(), unless others are to stay.
constexpr std::size_t blobs_max = 500'000;

// Of a folder that is laid out. A name that no system takes is wrong on every node, and no fault of this one.
Error cannot_make(const std::string& what, const std::string& path, int error_number);

// False as soon as nobody wants any more what is being made. Asked often; none: it is wanted to its end.
using StillWanted = std::function<bool()>;

class BlobStore {
 public:
  // The folder is made with the first blob; the one above it must be there.
  explicit BlobStore(std::string folder) : folder_(std::move(folder)) {}

  // False for what is no hash.
  bool has(std::string_view hash) const;
  // One of another size was damaged.
  bool has(std::string_view hash, Bytes bytes) const;

  // Refuses bytes that do not have this hash. One that is there and whole stays as it is.
  Result<> put(std::string_view hash, std::span<const std::byte> bytes);

  // Nothing if there is none. One that is damaged is dropped, and told as such once; any other error says
  // nothing about whether it is there.
  Result<std::optional<std::string>> get(std::string_view hash) const;

  // Makes a new file of these blobs, one behind the other, and returns its size. File and blobs share no
  // bytes that a writer could change: where the file system can, they share blocks until one is written. What
  // nobody wants any more ends before the next blob, with an error.
  Result<Bytes> copy(std::span<const std::string> hashes, const std::string& path, bool executable,
                     const StillWanted& still_wanted = {}) const;

  // On the disk when this returns, each with its name: before anybody hears that a job with them is accepted.
  // Few are written one by one; where they are many, or left by an earlier process, the whole file system is.
  Result<> keep(std::span<const std::string> hashes);

  // Is it there? Then it counts as used now: trim() leaves it alone for a while.
  bool use(std::string_view hash) const;

  struct TrimOptions {
    Bytes bytes_max;  // as room_of() counts them
    std::size_t count_max = blobs_max;
    Duration age_max{};                           // since it was used last; 0: any
    Duration age_min{};                           // one that was used more lately stays
    const std::set<std::string>* keep = nullptr;  // these stay, whatever they are
    Instant now = {};                             // zero: as the machine's clock says
  };
  struct Held {
    Bytes bytes;  // as room_of() counts them
    std::size_t count = 0;
  };
  // Removes what is too old, and then the blobs that were not used for the longest time until the others hold
  // `bytes_max` at most and are not too many. What is left.
  Result<Held> trim(const TrimOptions& options);
  Result<> trim(Bytes bytes_max);

  // The hash must be one.
  std::string path_of(std::string_view hash) const;

 private:
  struct Blob;

  Result<> append(std::string_view hash, int to, const std::string& path) const;
  // Drops the blob if this is not its hash.
  Result<> verify(std::string_view hash, std::string_view found) const;
  Result<std::vector<Blob>> list() const;
  void remove_abandoned(const std::string& path) const;
  Result<> move_into_place(const std::string& fresh, std::string_view hash);
  Result<> sync_all();
  Result<> sync_each(const std::set<std::string>& hashes);

  std::string folder_;
  std::mutex syncing_;  // one at a time: who comes later may rely on what the one before him has done
  std::mutex mutex_;
  std::set<std::string> unsynced_;  // since this store was opened
  bool more_unsynced_ = true;       // than those: others of before, or too many to remember
};

}  // namespace tutti::sync
