#include "learn/checkpoint/blocks.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/files/files.hpp"
#include "base/hash/hash.hpp"
#include "learn/checkpoint/files.hpp"
#include "learn/safetensors/file.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::size_t kept_max =
    64;  // blocks: one for each of the files that a tensor is usually spread over
constexpr std::size_t open_max = 128;  // files

}  // namespace

Result<int> Blocks::descriptor(std::size_t file) {
  if (const auto found = open_.find(file); found != open_.end()) return found->second.get();
  if (open_.size() >= open_max) open_.clear();
  const std::string& name = files_[file].name;
  auto opened = files::open_file(folder_ + "/" + name);
  if (!opened) return std::move(opened).error().within(folder_);
  if (!*opened && !is_folder(folder_))
    return failed("it was removed while it was read").within(folder_).remedy("take one that is there now");
  if (!*opened) return damaged(name + " is missing").within(folder_);
  // Blocks are read one behind the other: the kernel may read ahead further than usual.
  static_cast<void>(posix_fadvise((*opened)->file.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
  return open_.emplace(file, std::move((*opened)->file)).first->second.get();
}

Result<> Blocks::hold() {
  for (std::size_t file = 0; file < std::min(files_.size(), open_max); ++file) {
    if (const auto opened = descriptor(file); !opened) return opened.error();
  }
  return {};
}

Result<> Blocks::fill(Kept& kept) {
  const FileRecord& record = files_[kept.file];
  const auto file = descriptor(kept.file);
  if (!file) return file.error();
  const std::uint64_t begin = kept.block * block_bytes;
  kept.bytes.resize(std::min(block_bytes, record.bytes - begin));
  const std::string block = record.name + ": block " + std::to_string(kept.block);
  struct stat status {};
  if (fstat(*file, &status) != 0) return failed_errno("cannot read " + record.name, errno).within(folder_);
  const bool ends_early = static_cast<std::uint64_t>(status.st_size) < begin + kept.bytes.size();
  if (ends_early)
    return damaged(block + " is damaged: cannot read " + record.name + ": it ends early").within(folder_);
  // A disk that does not give the bytes says nothing of them.
  if (auto read = files::read_at(*file, begin, kept.bytes, record.name); !read)
    return failed(block + ": " + read.error().message()).within(folder_);
  bytes_read_ += kept.bytes.size();
  if (hash64(kept.bytes) != record.blocks[kept.block]) return damaged(block + " is damaged").within(folder_);
  return {};
}

Result<std::span<const std::byte>> Blocks::read(std::size_t file, std::uint64_t block) {
  const auto found =
      std::ranges::find_if(kept_, [&](const Kept& kept) { return kept.file == file && kept.block == block; });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return std::span<const std::byte>(found->bytes);
  }
  // What is not filled, also for want of memory, is not kept.
  std::list<Kept> filling;
  if (kept_.size() < kept_max) {
    filling.emplace_front();
  } else {
    filling.splice(filling.begin(), kept_, std::prev(kept_.end()));  // its memory serves again
  }
  filling.front().file = file;
  filling.front().block = block;
  if (auto filled = fill(filling.front()); !filled) return std::move(filled).error();
  kept_.splice(kept_.begin(), filling);
  return std::span<const std::byte>(kept_.front().bytes);
}

Result<> Blocks::copy(std::size_t file, std::uint64_t begin, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto block = read(file, begin / block_bytes);
    if (!block) return block.error();
    const auto from = block->subspan(begin % block_bytes);
    const std::size_t count = std::min(from.size(), bytes.size());
    std::ranges::copy(from.first(count), bytes.begin());
    bytes = bytes.subspan(count);
    begin += count;
  }
  return {};
}

Result<> Blocks::check_size(std::size_t file) {
  const auto number = descriptor(file);
  if (!number) return number.error();
  const FileRecord& record = files_[file];
  struct stat status {};
  if (fstat(*number, &status) != 0) return failed_errno("cannot read " + record.name, errno).within(folder_);
  if (static_cast<std::uint64_t>(status.st_size) <= record.bytes) return {};
  return damaged(record.name + " is longer than it was written").within(folder_);
}

}  // namespace tutti::checkpoint
