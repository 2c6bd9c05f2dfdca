#include "node/rank/log_segments.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <vector>

#include "base/files/files.hpp"

namespace tutti::rank {
namespace {

constexpr std::string_view segment_prefix = "log.";
constexpr std::size_t offset_digits = 20;
// No rank writes so much: a file that says so is not of its log, and sums of offsets stay numbers.
constexpr std::uint64_t offset_max = std::uint64_t{1} << 60;
constexpr int listings_max = 8;
constexpr std::size_t segments_listed_max = 1024;

std::string segment_path(const std::string& folder, std::uint64_t offset) {
  std::string digits = std::to_string(offset);
  digits.insert(0, offset_digits - digits.size(), '0');
  return folder + "/" + std::string(segment_prefix) + digits;
}

bool parse_segment_name(std::string_view name, std::uint64_t& offset) {
  if (!name.starts_with(segment_prefix)) return false;
  name.remove_prefix(segment_prefix.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), offset);
  return name.size() == offset_digits && error == std::errc() && end == name.data() + name.size() &&
         offset <= offset_max;
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// The first offsets of all segments, ascending. The rank may have filled its folder with names of its own.
Result<std::vector<std::uint64_t>> list_segments(const std::string& folder) {
  const std::unique_ptr<DIR, CloseFolder> listing(opendir(folder.c_str()));
  if (!listing) return failed_errno("cannot read " + folder, errno);
  std::vector<std::uint64_t> offsets;
  std::uint64_t offset = 0;
  while (const dirent* entry = readdir(listing.get())) {
    if (parse_segment_name(entry->d_name, offset)) offsets.push_back(offset);
    if (offsets.size() > segments_listed_max)
      return failed("cannot read " + folder + ": it has too many logs");
  }
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

Error no_file(const std::string& path) {
  return failed("cannot read " + path + ": it is no file; the rank has put something else there");
}

Result<std::uint64_t> end_of_segment(const std::string& folder, std::uint64_t offset) {
  const std::string path = segment_path(folder, offset);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return failed_errno("cannot read " + path, errno);
  if (!S_ISREG(status.st_mode)) return no_file(path);
  return offset + static_cast<std::uint64_t>(status.st_size);
}

enum class SegmentRead { done, gone, broken, no_file };

// Appends what segment `first` holds from the end of `chunk` on.
SegmentRead append_segment(const std::string& path, std::uint64_t first, std::size_t bytes_max,
                           LogChunk& chunk) {
  // The rank may have put a pipe there, which would keep the reader waiting, or a link to what has no end.
  const files::FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.valid() && errno == ELOOP) return SegmentRead::no_file;
  if (!file.valid()) return errno == ENOENT ? SegmentRead::gone : SegmentRead::broken;
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return SegmentRead::broken;
  if (!S_ISREG(status.st_mode)) return SegmentRead::no_file;
  while (chunk.bytes.size() < bytes_max) {
    char buffer[65536];
    const std::size_t wanted = std::min(sizeof buffer, bytes_max - chunk.bytes.size());
    const auto position = static_cast<off_t>(chunk.offset + chunk.bytes.size() - first);
    const ssize_t count = pread(file.get(), buffer, wanted, position);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SegmentRead::broken;
    if (count == 0) return SegmentRead::done;
    chunk.bytes.append(buffer, static_cast<std::size_t>(count));
  }
  return SegmentRead::done;
}

// One attempt with the segments as they were listed.
SegmentRead read_listed(const std::string& folder, const std::vector<std::uint64_t>& segments,
                        std::size_t bytes_max, LogChunk& chunk) {
  if (segments.empty()) return SegmentRead::done;
  chunk.offset = std::max(chunk.offset, segments.front());
  // The last segment that starts at or before the offset.
  auto segment = std::upper_bound(segments.begin(), segments.end(), chunk.offset) - 1;
  for (; segment != segments.end() && chunk.bytes.size() < bytes_max; ++segment) {
    const std::uint64_t reached = chunk.offset + chunk.bytes.size();
    if (reached < *segment) return SegmentRead::done;
    const SegmentRead read = append_segment(segment_path(folder, *segment), *segment, bytes_max, chunk);
    if (read != SegmentRead::done) return read;
  }
  return SegmentRead::done;
}

}  // namespace

LogWriter::LogWriter(std::string folder, Bytes log_bytes_max)
    : folder_(std::move(folder)),
      segment_bytes_max_(static_cast<std::uint64_t>(log_bytes_max.count()) / log_segments_max) {
  TUTTI_CHECK(segment_bytes_max_ > 0);
  if (auto end = log_end(folder_)) offset_ = *end;
  if (auto found = list_segments(folder_)) segments_.assign(found->begin(), found->end());
}

void LogWriter::append(std::string_view bytes) {
  if (note_gap()) bytes.remove_prefix(write_some(bytes));
  dropped_bytes_ += bytes.size();
}

std::size_t LogWriter::write_some(std::string_view bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    if ((!segment_.valid() || segment_bytes_ >= segment_bytes_max_) && !open_segment()) break;
    const auto room = static_cast<std::size_t>(segment_bytes_max_ - segment_bytes_);
    const ssize_t count =
        write(segment_.get(), bytes.data() + written, std::min(room, bytes.size() - written));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    written += static_cast<std::size_t>(count);
    segment_bytes_ += static_cast<std::uint64_t>(count);
    offset_ += static_cast<std::uint64_t>(count);
  }
  return written;
}

bool LogWriter::open_segment() {
  // Before the new one is made: on a full disk this is what makes room for it.
  drop_old_segments();
  const std::string path = segment_path(folder_, offset_);
  // Nothing of the log is in a file of this name; what is there may be a pipe of the rank's.
  unlink(path.c_str());
  segment_ =
      files::FileDescriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  segment_bytes_ = 0;
  if (segment_.valid() && (segments_.empty() || segments_.back() != offset_)) segments_.push_back(offset_);
  return segment_.valid();
}

void LogWriter::drop_old_segments() {
  for (; segments_.size() >= log_segments_max; segments_.pop_front())
    unlink(segment_path(folder_, segments_.front()).c_str());
}

bool LogWriter::note_gap() {
  if (dropped_bytes_ == 0) return true;
  const std::string note =
      "\ntutti: " + std::to_string(dropped_bytes_) + " bytes of output are missing here: the disk was full\n";
  if (write_some(note) != note.size()) return false;
  dropped_bytes_ = 0;
  return true;
}

Result<LogChunk> read_log(const std::string& folder, std::uint64_t offset, std::size_t bytes_max) {
  for (int listing = 0; listing < listings_max; ++listing) {
    const auto segments = list_segments(folder);
    if (!segments) return segments.error();
    LogChunk chunk{.offset = offset, .bytes = {}};
    switch (read_listed(folder, *segments, bytes_max, chunk)) {
      case SegmentRead::done:
        return chunk;
      case SegmentRead::broken:
        return failed_errno("cannot read the log in " + folder, errno);
      case SegmentRead::no_file:
        return no_file("the log in " + folder);
      case SegmentRead::gone:  // dropped since it was listed: the next listing begins later
        continue;
    }
  }
  return failed("cannot read the log in " + folder + ": it is being written too fast");
}

Result<std::uint64_t> log_end(const std::string& folder) {
  const auto segments = list_segments(folder);
  if (!segments) return segments.error();
  if (segments->empty()) return std::uint64_t{0};
  return end_of_segment(folder, segments->back());
}

void drop_oldest_segment(const std::string& folder) {
  const auto segments = list_segments(folder);
  if (segments && !segments->empty()) unlink(segment_path(folder, segments->front()).c_str());
}

Result<std::string> last_lines(const std::string& folder, std::size_t lines, std::size_t bytes_max) {
  const auto end = log_end(folder);
  if (!end) return end.error();
  auto chunk = read_log(folder, *end > bytes_max ? *end - bytes_max : 0, bytes_max);
  if (!chunk) return std::move(chunk).error();
  const std::string_view text = chunk->bytes;
  if (text.empty() || lines == 0) return std::string();
  // Backwards over the line ends in front of the last line, then of the one before it, and so on.
  std::size_t start = text.size();
  for (std::size_t line = 0; line < lines && start > 0; ++line) {
    const std::size_t line_end = start < 2 ? std::string_view::npos : text.rfind('\n', start - 2);
    const bool cut = line_end == std::string_view::npos && chunk->offset > 0;
    if (cut && line > 0) break;
    start = line_end == std::string_view::npos ? 0 : line_end + 1;
  }
  return std::string(text.substr(start));
}

}  // namespace tutti::rank
