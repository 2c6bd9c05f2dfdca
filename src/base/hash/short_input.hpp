// XXH3 of inputs that are too short for stripes: each range of lengths has a formula of its own. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hash/hash.hpp"

namespace tutti::hashing {

inline constexpr std::size_t short_bytes_max = 240;

std::uint64_t short_hash64(std::span<const std::byte> bytes, std::uint64_t seed);
Hash128 short_hash128(std::span<const std::byte> bytes);

}  // namespace tutti::hashing
