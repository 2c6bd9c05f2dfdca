#include "base/hash/hash.hpp"

#include <array>

#define XXH_INLINE_ALL  // the header alone: the workers build where the library is not installed
#include <xxhash.h>

#include "base/bytes.hpp"
#include "base/check.hpp"

namespace tutti {

struct Hasher::State {
  XXH3_state_t xxh;
};

std::string Hash128::hex() const {
  std::array<std::byte, 16> bytes;
  for (unsigned at = 0; at < 8; ++at) {
    bytes[at] = static_cast<std::byte>(high >> (56 - 8 * at));
    bytes[8 + at] = static_cast<std::byte>(low >> (56 - 8 * at));
  }
  return to_hex(bytes);
}

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Hasher::Hasher() : state_(std::make_unique<State>()) {
  TUTTI_CHECK(XXH3_128bits_reset(&state_->xxh) == XXH_OK);
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) {
  TUTTI_CHECK(XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size()) == XXH_OK);
}

Hash128 Hasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.high64, hash.low64};
}

}  // namespace tutti
