#include "base/hash/short_input.hpp"

#include "base/check.hpp"
#include "base/hash/mix.hpp"

namespace tutti::hashing {
namespace {

// Where the inputs of more than 128 bytes meet the secret again.
constexpr std::size_t second_round_offset = 3;
constexpr std::size_t last_offset = 136 - 17;

std::uint64_t secret64(std::size_t at) { return read64(default_secret.data() + at); }
std::uint64_t secret32(std::size_t at) { return read32(default_secret.data() + at); }

std::uint64_t mix16(const std::byte* in, std::size_t secret, std::uint64_t seed) {
  return multiply_and_fold(read64(in) ^ (secret64(secret) + seed),
                           read64(in + 8) ^ (secret64(secret + 8) - seed));
}

// Three bytes and the length in one word.
std::uint32_t combined3(std::span<const std::byte> in) {
  const auto at = [&](std::size_t index) { return std::to_integer<std::uint32_t>(in[index]); };
  const auto length = static_cast<std::uint32_t>(in.size());
  return at(0) << 16U | at(in.size() / 2) << 24U | at(in.size() - 1) | length << 8U;
}

// ---- 64 bits

std::uint64_t hash64_of_8(const std::byte* in, std::size_t size, std::uint64_t seed) {
  const auto low_seed = static_cast<std::uint32_t>(seed);
  seed ^= static_cast<std::uint64_t>(__builtin_bswap32(low_seed)) << 32U;
  const std::uint64_t both = read32(in + size - 4) + (static_cast<std::uint64_t>(read32(in)) << 32U);
  std::uint64_t hash = both ^ ((secret64(8) ^ secret64(16)) - seed);
  hash ^= std::rotl(hash, 49) ^ std::rotl(hash, 24);
  hash *= prime_mix_2;
  hash ^= (hash >> 35U) + size;
  hash *= prime_mix_2;
  return hash ^ hash >> 28U;
}

std::uint64_t hash64_of_16(const std::byte* in, std::size_t size, std::uint64_t seed) {
  const std::uint64_t low = read64(in) ^ ((secret64(24) ^ secret64(32)) + seed);
  const std::uint64_t high = read64(in + size - 8) ^ ((secret64(40) ^ secret64(48)) - seed);
  return avalanche(size + __builtin_bswap64(low) + high + multiply_and_fold(low, high));
}

// Pairs from both ends, towards the middle.
std::uint64_t hash64_of_128(const std::byte* in, std::size_t size, std::uint64_t seed) {
  std::uint64_t sum = size * prime64_1;
  const std::size_t pairs = (size + 31) / 32;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    sum += mix16(in + 16 * pair, 32 * pair, seed);
    sum += mix16(in + size - 16 * (pair + 1), 32 * pair + 16, seed);
  }
  return avalanche(sum);
}

std::uint64_t hash64_of_240(const std::byte* in, std::size_t size, std::uint64_t seed) {
  std::uint64_t sum = size * prime64_1;
  for (std::size_t at = 0; at < 128; at += 16) sum += mix16(in + at, at, seed);
  sum = avalanche(sum);
  for (std::size_t at = 128; at + 16 <= size; at += 16)
    sum += mix16(in + at, at - 128 + second_round_offset, seed);
  return avalanche(sum + mix16(in + size - 16, last_offset, seed));
}

// ---- 128 bits

Hash128 hash128_of_3(std::span<const std::byte> in) {
  const std::uint32_t low = combined3(in);
  const std::uint32_t high = std::rotl(__builtin_bswap32(low), 13);
  return {.high = strong_avalanche(high ^ secret32(8) ^ secret32(12)),
          .low = strong_avalanche(low ^ secret32(0) ^ secret32(4))};
}

Hash128 hash128_of_8(const std::byte* in, std::size_t size) {
  const std::uint64_t both = read32(in) + (static_cast<std::uint64_t>(read32(in + size - 4)) << 32U);
  Product hash = multiply(both ^ secret64(16) ^ secret64(24), prime64_1 + (size << 2U));
  hash.high += hash.low << 1U;
  hash.low ^= hash.high >> 3U;
  hash.low = (hash.low ^ hash.low >> 35U) * prime_mix_2;
  return {.high = avalanche(hash.high), .low = hash.low ^ hash.low >> 28U};
}

Hash128 hash128_of_16(const std::byte* in, std::size_t size) {
  const std::uint64_t first = read64(in);
  std::uint64_t last = read64(in + size - 8);
  Product mixed = multiply(first ^ last ^ secret64(32) ^ secret64(40), prime64_1);
  mixed.low += static_cast<std::uint64_t>(size - 1) << 54U;
  last ^= secret64(48) ^ secret64(56);
  mixed.high += last + static_cast<std::uint32_t>(last) * (prime32_2 - 1);
  mixed.low ^= __builtin_bswap64(mixed.high);
  Product hash = multiply(mixed.low, prime64_2);
  hash.high += mixed.high * prime64_2;
  return {.high = avalanche(hash.high), .low = avalanche(hash.low)};
}

void mix32(Product& sums, const std::byte* first, const std::byte* second, std::size_t secret) {
  sums.low += mix16(first, secret, 0);
  sums.low ^= read64(second) + read64(second + 8);
  sums.high += mix16(second, secret + 16, 0);
  sums.high ^= read64(first) + read64(first + 8);
}

Hash128 finish(const Product& sums, std::size_t size) {
  const std::uint64_t high = sums.low * prime64_1 + sums.high * prime64_4 + size * prime64_2;
  return {.high = 0 - avalanche(high), .low = avalanche(sums.low + sums.high)};
}

Hash128 hash128_of_128(const std::byte* in, std::size_t size) {
  Product sums{.low = size * prime64_1, .high = 0};
  for (std::size_t pair = (size + 31) / 32; pair-- > 0;)
    mix32(sums, in + 16 * pair, in + size - 16 * (pair + 1), 32 * pair);
  return finish(sums, size);
}

Hash128 hash128_of_240(const std::byte* in, std::size_t size) {
  Product sums{.low = size * prime64_1, .high = 0};
  for (std::size_t at = 0; at < 128; at += 32) mix32(sums, in + at, in + at + 16, at);
  sums = {.low = avalanche(sums.low), .high = avalanche(sums.high)};
  for (std::size_t at = 128; at + 32 <= size; at += 32)
    mix32(sums, in + at, in + at + 16, at - 128 + second_round_offset);
  mix32(sums, in + size - 16, in + size - 32, last_offset - 16);
  return finish(sums, size);
}

}  // namespace

std::uint64_t short_hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  const std::size_t size = bytes.size();
  TUTTI_CHECK(size <= short_bytes_max);
  if (size == 0) return strong_avalanche(seed ^ secret64(56) ^ secret64(64));
  if (size <= 3) return strong_avalanche(combined3(bytes) ^ ((secret32(0) ^ secret32(4)) + seed));
  if (size <= 8) return hash64_of_8(bytes.data(), size, seed);
  if (size <= 16) return hash64_of_16(bytes.data(), size, seed);
  if (size <= 128) return hash64_of_128(bytes.data(), size, seed);
  return hash64_of_240(bytes.data(), size, seed);
}

Hash128 short_hash128(std::span<const std::byte> bytes) {
  const std::size_t size = bytes.size();
  TUTTI_CHECK(size <= short_bytes_max);
  if (size == 0)
    return {.high = strong_avalanche(secret64(80) ^ secret64(88)),
            .low = strong_avalanche(secret64(64) ^ secret64(72))};
  if (size <= 3) return hash128_of_3(bytes);
  if (size <= 8) return hash128_of_8(bytes.data(), size);
  if (size <= 16) return hash128_of_16(bytes.data(), size);
  if (size <= 128) return hash128_of_128(bytes.data(), size);
  return hash128_of_240(bytes.data(), size);
}

}  // namespace tutti::hashing
