#include "serve/cpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/files.hpp"

namespace tutti::serve::cpu {
namespace {

constexpr std::size_t large_page_bytes = std::size_t{2} << 20;
constexpr std::size_t small_page_bytes = 4096;
constexpr std::size_t proc_file_bytes_max = std::size_t{1} << 20;

std::optional<std::uint64_t> number_in(std::string_view text) {
  const auto begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> number_of_file(const std::string& path) {
  const auto content = files::read_file(path, proc_file_bytes_max);
  if (!content || !*content) return std::nullopt;
  return number_in(**content);
}

// The number behind a word that begins a line.
std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(word)) return number_in(line.substr(word.size()));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

// How a version of control groups names its files; `member` is what stands before a process's own group in
// /proc/self/cgroup, behind the number of the hierarchy.
struct GroupFiles {
  const char* member;
  const char* folder;
  const char* limit;
  const char* used;
  std::array<const char*, 2> cached;
};
constexpr std::array<GroupFiles, 2> group_versions{
    {{"::", "/sys/fs/cgroup", "/memory.max", "/memory.current", {"inactive_file ", "active_file "}},
     {":memory:",
      "/sys/fs/cgroup/memory",
      "/memory.limit_in_bytes",
      "/memory.usage_in_bytes",
      {"total_inactive_file ", "total_active_file "}}}};

// What one group leaves: pages of files that it holds are given back when somebody needs the place.
std::optional<std::uint64_t> group_free_bytes(const std::string& group, const GroupFiles& names) {
  const auto limit = number_of_file(group + names.limit);
  const auto used = number_of_file(group + names.used);
  if (!limit || !used) return std::nullopt;
  const auto stat = files::read_file(group + "/memory.stat", proc_file_bytes_max);
  std::uint64_t cached = 0;
  for (const char* const word : names.cached)
    cached += stat && *stat ? number_behind(**stat, word).value_or(0) : 0;
  const std::uint64_t kept = *used - std::min(*used, cached);
  return *limit - std::min(*limit, kept);
}

// Where the process's group is in a hierarchy, "" for the top of what it sees.
std::string own_group(std::string_view memberships, std::string_view member) {
  while (!memberships.empty()) {
    const std::string_view line = memberships.substr(0, memberships.find('\n'));
    memberships.remove_prefix(std::min(line.size() + 1, memberships.size()));
    const std::size_t number_end = std::min(line.find(':'), line.size());
    if (!line.substr(number_end).starts_with(member)) continue;
    std::string path(line.substr(number_end + member.size()));
    // One outside of what it sees begins with "/..".
    return path == "/" || path.find("/..") != std::string::npos ? "" : path;
  }
  return "";
}

// The least of what the process's control group and all above it leave: any of them may have a limit. In a
// container the ones above are not to be seen, and its own is the top.
std::optional<std::uint64_t> groups_free_bytes(const std::string& root) {
  const auto memberships = files::read_file(root + "/proc/self/cgroup", proc_file_bytes_max);
  std::optional<std::uint64_t> least;
  for (const GroupFiles& names : group_versions) {
    std::string group = memberships && *memberships ? own_group(**memberships, names.member) : "";
    for (;;) {
      if (const auto free = group_free_bytes(root + names.folder + group, names))
        least = std::min(least.value_or(*free), *free);
      if (group.empty()) break;
      group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
    }
  }
  return least;
}

Error no_memory(const char* what, std::size_t bytes, int error_number) {
  return failed_errno("cannot reserve " + shown_bytes(bytes) + " for " + what, error_number)
      .remedy("take smaller weights, a smaller cache or a machine with more memory");
}

}  // namespace

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<Memory> Memory::reserve(std::size_t bytes, const char* what) {
  Memory memory;
  if (bytes == 0) return memory;
  const std::size_t whole = (bytes + large_page_bytes - 1) / large_page_bytes * large_page_bytes;
  // One large page more than is asked for, so that it can begin where a large page does.
  void* const mapped = ::mmap(nullptr, whole + large_page_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return no_memory(what, bytes, errno);
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t over = reinterpret_cast<std::uintptr_t>(begin) % large_page_bytes;
  const std::size_t before = over == 0 ? 0 : large_page_bytes - over;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + whole, large_page_bytes - before);
  memory.data_ = begin + before;
  memory.bytes_ = whole;
  // A wish: where it is not granted, small pages do.
  ::madvise(memory.data_, whole, MADV_HUGEPAGE);
  return memory;
}

void Memory::touch(std::size_t begin, std::size_t bytes) const {
  if (::madvise(data_ + begin, bytes, MADV_POPULATE_WRITE) == 0) return;
  // A kernel that does not know the word. What is there already stays: others may write beside.
  for (std::size_t at = 0; at < bytes; at += small_page_bytes)
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(data_ + begin + at), 0, __ATOMIC_RELAXED);
}

Result<std::uint64_t> free_memory_bytes(const std::string& root) {
  const auto info = files::read_existing_file(root + "/proc/meminfo", proc_file_bytes_max);
  if (!info) return info.error();
  const auto kib = number_behind(*info, "MemAvailable:");
  if (!kib) return failed("/proc/meminfo does not say what memory is free");
  const std::uint64_t free = *kib * 1024;
  return std::min(free, groups_free_bytes(root).value_or(free));
}

std::string shown_bytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  if (bytes >= 1'000'000'000) {
    std::snprintf(text.data(), text.size(), "%.1f GB", static_cast<double>(bytes) * 1e-9);
  } else {
    std::snprintf(text.data(), text.size(), "%.1f MB", static_cast<double>(bytes) * 1e-6);
  }
  return text.data();
}

}  // namespace tutti::serve::cpu
