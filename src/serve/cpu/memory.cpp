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

// What the control group of a container leaves; its own files are at these places inside it, of either
// version.
std::optional<std::uint64_t> group_free_bytes() {
  constexpr std::array<std::array<const char*, 2>, 2> places{
      {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}};
  for (const auto& [limit_file, used_file] : places) {
    const auto limit = number_of_file(limit_file);
    const auto used = number_of_file(used_file);
    if (limit && used) return *limit > *used ? *limit - *used : 0;
  }
  return std::nullopt;
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

Result<std::uint64_t> free_memory_bytes() {
  const auto info = files::read_existing_file("/proc/meminfo", proc_file_bytes_max);
  if (!info) return info.error();
  constexpr std::string_view key = "MemAvailable:";
  const auto at = info->find(key);
  const auto kib =
      at == std::string::npos ? std::nullopt : number_in(std::string_view(*info).substr(at + key.size()));
  if (!kib) return failed("/proc/meminfo does not say what memory is free");
  const std::uint64_t free = *kib * 1024;
  return std::min(free, group_free_bytes().value_or(free));
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
