// Room on the disk that the write-ahead log has already, beyond what it holds: whoever fills the disk, so
// much can still be committed. Blocks are taken behind the end of the file, where SQLite finds them when it
// writes on. A file system that cannot do this has no reserve, and a full disk then refuses everything. One
// thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::store {

// For some hundreds of small commits.
constexpr std::uint64_t reserve_bytes_wanted = std::uint64_t{8} << 20;

class Reserve {
 public:
  // The log must be there. On a small disk the reserve is a part of what is free, not all of it.
  Result<> open(const std::string& log_path);

  // Before a commit that will add about `bytes` to a log that holds `used`: is the reserve whole behind them?
  // Takes the blocks if they are not taken yet.
  bool keep(std::uint64_t used, std::uint64_t bytes);

  // Of the log, with what it held once; what is put aside behind its end is not counted.
  std::uint64_t log_bytes() const;
  // The log was made empty, and its blocks are gone: takes those of the reserve again.
  void log_was_cut();
  // Is the log still the file of that name?
  bool is_at(const std::string& log_path) const;

 private:
  bool take(std::uint64_t end);

  files::FileDescriptor log_;
  std::uint64_t reserve_bytes_ = 0;
  std::uint64_t taken_ = 0;  // blocks are there up to this offset
};

}  // namespace tutti::store
