// Content hashes (XXH3): fast and well spread, for checksums, deduplication and stable orders. Not against an
// adversary: whoever can choose the bytes can make two contents collide.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  std::string hex() const;  // 32 digits, high half first
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
Hash128 hash128(std::span<const std::byte> bytes);

// hash128 of bytes that arrive in pieces. One thread at a time.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();

  void update(std::span<const std::byte> bytes);
  // Of all bytes so far; more may follow.
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
