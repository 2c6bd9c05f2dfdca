// Contents on disk, each in a file named by its hash: "ab/cdef…" below the store's folder, readable by the
// owner only. Any thread, and any number of processes may share a store: a blob appears whole or not at all.
// Nothing is flushed to the disk. Every read is verified instead, and a blob that a crash has damaged is
// dropped, so that it counts as missing and is sent again.
#pragma once

#include <cstddef>
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

// Of a folder that is laid out. A name that no system takes is wrong on every node, and no fault of this one.
Error cannot_make(const std::string& what, const std::string& path, int error_number);

class BlobStore {
 public:
  // The folder is made with the first blob; the one above it must be there.
  explicit BlobStore(std::string folder) : folder_(std::move(folder)) {}

  // False for what is no hash.
  bool has(std::string_view hash) const;

  // Refuses bytes that do not have this hash.
  Result<> put(std::string_view hash, std::span<const std::byte> bytes);

  // Nothing if there is none. One that is damaged is dropped, and told as such once; any other error says
  // nothing about whether it is there.
  Result<std::optional<std::string>> get(std::string_view hash) const;

  // Makes a new file of these blobs, one behind the other, and returns its size. File and blobs share no
  // bytes that a writer could change: where the file system can, they share blocks until one is written.
  Result<Bytes> copy(std::span<const std::string> hashes, const std::string& path, bool executable) const;

  // Is it there? Then it counts as used now: trim() leaves it alone for a while.
  bool use(std::string_view hash) const;

  struct TrimOptions {
    Bytes bytes_max;
    Duration age_max{};                           // since it was used last; 0: any
    Duration age_min{};                           // one that was used more lately stays
    const std::set<std::string>* keep = nullptr;  // these stay, whatever they are
  };
  // Removes what is too old, and then the blobs that were not used for the longest time until the others hold
  // `bytes_max` at most. How much is left.
  Result<Bytes> trim(const TrimOptions& options);
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

  std::string folder_;
};

}  // namespace tutti::sync
