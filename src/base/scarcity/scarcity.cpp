#include "base/scarcity/scarcity.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t unbounded_bytes = std::numeric_limits<std::size_t>::max();
std::atomic<std::size_t> given_bytes_max = unbounded_bytes;
std::atomic<std::int64_t> given_before_moment = -1;  // negative: there is none, or it is over

bool is_moment() { return given_before_moment >= 0 && given_before_moment.fetch_sub(1) == 0; }

}  // namespace

// Seen through, a compiler would take the pairs of other sources for mismatches.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bytes > given_bytes_max || is_moment() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
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

ScarceMoment::ScarceMoment(std::uint32_t given_before) { given_before_moment = given_before; }
ScarceMoment::~ScarceMoment() { given_before_moment = -1; }
bool ScarceMoment::has_come() const { return given_before_moment < 0; }

}  // namespace tutti
