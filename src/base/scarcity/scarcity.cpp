#include "base/scarcity/scarcity.hpp"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t unbounded_bytes = std::numeric_limits<std::size_t>::max();
std::atomic<std::size_t> given_bytes_max = unbounded_bytes;

}  // namespace

// Seen through, a compiler would take the pairs of other sources for mismatches.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bytes > given_bytes_max ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const given = operator new(bytes, std::nothrow);
  if (given == nullptr) throw std::bad_alloc();
  return given;
}
[[gnu::noinline]] void operator delete(void* given) noexcept { std::free(given); }
[[gnu::noinline]] void operator delete(void* given, std::size_t) noexcept { std::free(given); }

namespace tutti {

Scarcity::Scarcity(std::size_t allocation_bytes_max) { given_bytes_max = allocation_bytes_max; }
Scarcity::~Scarcity() { given_bytes_max = unbounded_bytes; }

}  // namespace tutti
