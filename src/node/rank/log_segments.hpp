// A rank's output on disk: files named by the logical offset of their first byte, of which the last few are
// kept. One shim writes, single-threaded; any process may read at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "base/units.hpp"

namespace tutti::rank {

constexpr std::size_t log_segments_max = 4;

// Never fails: a full disk must not end the rank. What could not be written is dropped, and the log says so
// where the gap is, as soon as it can.
class LogWriter {
 public:
  // Goes on behind what the folder already holds.
  LogWriter(std::string folder, Bytes log_bytes_max);

  void append(std::string_view bytes);

 private:
  // The part of `bytes` that could be written.
  std::size_t write_some(std::string_view bytes);
  bool open_segment();
  void drop_old_segments();
  // True once there is no gap left to tell about.
  bool note_gap();

  std::string folder_;
  std::uint64_t segment_bytes_max_;
  std::uint64_t offset_ = 0;         // of the next byte
  std::uint64_t segment_bytes_ = 0;  // in the open segment
  std::uint64_t dropped_bytes_ = 0;  // since the last note
  // The first offsets of those that are kept. The folder is not asked for them: the rank can fill it with so
  // many names that nobody finds its log in it.
  std::deque<std::uint64_t> segments_;
  files::FileDescriptor segment_;
};

struct LogChunk {
  std::uint64_t offset = 0;  // of the first byte; later than asked for if that was dropped already
  std::string bytes;
};

// At most `bytes_max` from `offset` on; no bytes at the end of the log.
Result<LogChunk> read_log(const std::string& folder, std::uint64_t offset, std::size_t bytes_max);

// The offset behind the last byte; 0 if nothing was written.
Result<std::uint64_t> log_end(const std::string& folder);

// Makes room on a full disk.
void drop_oldest_segment(const std::string& folder);

// The last lines, whole ones unless a single line exceeds `bytes_max`.
Result<std::string> last_lines(const std::string& folder, std::size_t lines, std::size_t bytes_max);

}  // namespace tutti::rank
