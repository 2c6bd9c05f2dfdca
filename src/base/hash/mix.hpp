// The constants of XXH3 and the ways in which it mixes words, from its published specification. Pure; for the
// sources of this folder only.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/hash/kernels.hpp"

namespace tutti::hashing {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

inline constexpr std::uint64_t prime32_1 = 0x9E3779B1U;
inline constexpr std::uint64_t prime32_2 = 0x85EBCA77U;
inline constexpr std::uint64_t prime32_3 = 0xC2B2AE3DU;
inline constexpr std::uint64_t prime64_1 = 0x9E3779B185EBCA87U;
inline constexpr std::uint64_t prime64_2 = 0xC2B2AE3D27D4EB4FU;
inline constexpr std::uint64_t prime64_3 = 0x165667B19E3779F9U;
inline constexpr std::uint64_t prime64_4 = 0x85EBCA77C2B2AE63U;
inline constexpr std::uint64_t prime64_5 = 0x27D4EB2F165667C5U;
inline constexpr std::uint64_t prime_mix_1 = 0x165667919E3779F9U;
inline constexpr std::uint64_t prime_mix_2 = 0x9FB21C651E98DF25U;

using Secret = std::array<std::byte, secret_bytes>;
extern const Secret default_secret;

inline std::uint32_t read32(const std::byte* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}
inline std::uint64_t read64(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

struct Product {
  std::uint64_t low;
  std::uint64_t high;
};
inline Product multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<std::uint64_t>(product), static_cast<std::uint64_t>(product >> 64U)};
}
inline std::uint64_t multiply_and_fold(std::uint64_t a, std::uint64_t b) {
  const Product product = multiply(a, b);
  return product.low ^ product.high;
}

inline std::uint64_t avalanche(std::uint64_t hash) {
  hash ^= hash >> 37U;
  hash *= prime_mix_1;
  return hash ^ hash >> 32U;
}
// That of XXH64, for the shortest inputs.
inline std::uint64_t strong_avalanche(std::uint64_t hash) {
  hash ^= hash >> 33U;
  hash *= prime64_2;
  hash ^= hash >> 29U;
  hash *= prime64_3;
  return hash ^ hash >> 32U;
}

}  // namespace tutti::hashing
