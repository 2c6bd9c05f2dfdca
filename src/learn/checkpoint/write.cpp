#include "learn/checkpoint/write.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <future>
#include <set>

#include "base/bytes.hpp"
#include "base/files/descriptor.hpp"
#include "base/hash/hash.hpp"
#include "base/units.hpp"
#include "learn/checkpoint/files.hpp"
#include "learn/safetensors/header.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::uint64_t write_bytes = std::uint64_t{8} << 20;  // at a time, and at multiples of it
constexpr std::size_t rank_digits = 5;

// A file that lies in memory in parts, read as if it were one: nothing is copied to be written.
class Parts {
 public:
  void add(std::span<const std::byte> part) {
    if (part.empty()) return;
    parts_.push_back(part);
    begins_.push_back(bytes_);
    bytes_ += part.size();
  }
  std::uint64_t bytes() const { return bytes_; }

  // The spans that make up [begin, end), the first `count_max` of them.
  std::vector<std::span<const std::byte>> slice(std::uint64_t begin, std::uint64_t end,
                                                std::size_t count_max = SIZE_MAX) const {
    std::vector<std::span<const std::byte>> spans;
    auto at = static_cast<std::size_t>(std::ranges::upper_bound(begins_, begin) - begins_.begin());
    // The last part that begins at `begin` or before is the one that holds it.
    for (at = at == 0 ? 0 : at - 1; at < parts_.size() && begin < end && spans.size() < count_max; ++at) {
      const auto tail = parts_[at].subspan(begin - begins_[at]);
      spans.push_back(tail.first(std::min<std::uint64_t>(tail.size(), end - begin)));
      begin += spans.back().size();
    }
    return spans;
  }

 private:
  std::vector<std::span<const std::byte>> parts_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t bytes_ = 0;
};

std::vector<std::uint64_t> hash_blocks(const Parts& parts) {
  std::vector<std::uint64_t> hashes;
  std::vector<std::byte> joined;
  for (std::uint64_t begin = 0; begin < parts.bytes(); begin += block_bytes) {
    const auto spans = parts.slice(begin, std::min(begin + block_bytes, parts.bytes()));
    if (spans.size() == 1) {
      hashes.push_back(hash64(spans.front()));
      continue;
    }
    joined.clear();
    for (const auto span : spans) joined.insert(joined.end(), span.begin(), span.end());
    hashes.push_back(hash64(joined));
  }
  return hashes;
}

// How many bytes of [begin, end) one call has written; -1 and errno if none.
ssize_t write_some(int file, const Parts& parts, std::uint64_t begin, std::uint64_t end) {
  std::vector<iovec> vectors;
  for (const auto span : parts.slice(begin, end, IOV_MAX)) {
    // The kernel only reads from there.
    vectors.push_back({const_cast<std::byte*>(span.data()), span.size()});
  }
  return pwritev(file, vectors.data(), static_cast<int>(vectors.size()), static_cast<off_t>(begin));
}

bool write_parts(int file, const Parts& parts) {
  for (std::uint64_t begin = 0; begin < parts.bytes();) {
    const std::uint64_t chunk = begin;
    const std::uint64_t end = std::min(chunk + write_bytes, parts.bytes());
    while (begin < end) {
      const ssize_t count = write_some(file, parts, begin, end);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      begin += static_cast<std::uint64_t>(count);
    }
    // The disk begins at once; the sync at the end then finds little left. Where it does not help it does no
    // harm.
    static_cast<void>(sync_file_range(file, static_cast<off_t>(chunk), static_cast<off_t>(end - chunk),
                                      SYNC_FILE_RANGE_WRITE));
  }
  return true;
}

// Space for the whole file: a full disk shows before the work, and the file lies in one stretch.
bool reserve(int file, std::uint64_t bytes) {
  while (fallocate(file, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    return errno == EOPNOTSUPP || errno == ENOSYS;  // not every file system can
  }
  return true;
}

// The file is empty by now: what is free is what it could have had.
Error cannot_write(const std::string& path, int file, std::uint64_t bytes, int error_number) {
  std::string amounts = "; it needs " + format_bytes(Bytes(static_cast<std::int64_t>(bytes)));
  struct statvfs disk {};
  if (fstatvfs(file, &disk) == 0) {
    const auto free_bytes = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    amounts += ", and " + format_bytes(Bytes(free_bytes)) + " are free";
  }
  return failed(failed_errno("cannot write " + path, error_number).message() + amounts);
}

Result<> write_durably(const std::string& path, const Parts& parts) {
  const files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return failed_errno("cannot write " + path, errno);
  if (reserve(file.get(), parts.bytes()) && write_parts(file.get(), parts) && fsync(file.get()) == 0)
    return {};
  const int error_number = errno;
  [[maybe_unused]] const int emptied = ftruncate(file.get(), 0);
  unlink(path.c_str());
  return cannot_write(path, file.get(), parts.bytes(), error_number);
}

Result<> check(std::span<const Piece> pieces) {
  std::set<std::string> names;
  for (const Piece& piece : pieces) {
    const auto wrong = [&](const char* why) {
      return invalid(why).within("tensor '" + piece.tensor + "', piece " + piece.box.text());
    };
    if (!safetensors::bytes_of(piece.type, piece.shape)) return wrong("the tensor's shape is none");
    if (!is_inside(piece.box, piece.shape)) return wrong("it does not lie inside the tensor");
    if (safetensors::bytes_of(piece.type, piece.box.extent) != piece.bytes.size()) {
      return wrong("it has not as many bytes as elements");
    }
    if (!names.insert(piece.tensor + piece.box.text()).second) return wrong("it is there twice");
  }
  return {};
}

safetensors::Layout lay_out(std::span<const Piece> pieces) {
  std::vector<safetensors::Entry> entries;
  entries.reserve(pieces.size());
  // A rank can hold several boxes of one tensor: the name tells which.
  for (const Piece& piece : pieces) {
    entries.push_back({piece.tensor + piece.box.text(), piece.type, piece.box.extent});
  }
  return safetensors::lay_out(std::move(entries), {});
}

}  // namespace

Result<FileRecord> write_file(const std::string& part_folder, int rank, std::span<const Piece> pieces) {
  if (auto fine = check(pieces); !fine) return std::move(fine).error();
  const safetensors::Layout layout = lay_out(pieces);
  Parts parts;
  parts.add(as_bytes(layout.header));
  for (const Piece& piece : pieces) parts.add(piece.bytes);

  FileRecord record{.name = "rank-" + padded(rank, rank_digits) + ".safetensors", .bytes = parts.bytes()};
  auto hashes = std::async(std::launch::async, [&] { return hash_blocks(parts); });
  auto written = write_durably(part_folder + "/" + record.name, parts);
  record.blocks = hashes.get();
  if (!written) return std::move(written).error();
  for (std::size_t at = 0; at < pieces.size(); ++at) {
    const Piece& piece = pieces[at];
    record.pieces.push_back(
        {piece.tensor, piece.type, piece.shape, piece.box, layout.entries[at].begin, layout.entries[at].end});
  }
  return record;
}

}  // namespace tutti::checkpoint
