#include "base/hash/hash.hpp"

#include <string>
#include <vector>

#define XXH_INLINE_ALL  // the peer, for these comparisons alone
#include <xxhash.h>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "base/hash/kernels.hpp"
#include "base/hash/mix.hpp"
#include "base/prng.hpp"

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(Prng& random, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

std::uint64_t peer64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}
Hash128 peer128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

// In pieces of random sizes up to `piece_bytes_max`.
Hash128 streamed(Prng& random, std::span<const std::byte> bytes, std::uint64_t piece_bytes_max) {
  Hasher hasher;
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), random.below(piece_bytes_max + 1));
    hasher.update(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  return hasher.digest();
}

// The published values of XXH3 for the empty input: files written today must be readable for ever.
TEST(Hash, MatchesThePublishedValues) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2U);
  EXPECT_EQ(hash128({}).hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, DependsOnContentAndSeed) {
  EXPECT_NE(hash64(as_bytes("a")), hash64(as_bytes("b")));
  EXPECT_NE(hash64(as_bytes("a"), 1), hash64(as_bytes("a"), 2));
  EXPECT_NE(hash128(as_bytes("a")), hash128(as_bytes("b")));
}

TEST(Hash, IsThatOfTheLibraryAtEveryLength) {
  Prng random(1);
  const Bytes bytes = random_bytes(random, 1100);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto some = std::span(bytes).first(size);
    const std::uint64_t seed = random.next();
    ASSERT_EQ(hash64(some), peer64(some, 0)) << size;
    ASSERT_EQ(hash64(some, seed), peer64(some, seed)) << size << " with seed " << seed;
    ASSERT_EQ(hash128(some), peer128(some)) << size;
  }
}

TEST(Hash, IsThatOfTheLibraryForLongInputs) {
  Prng random(2);
  const Bytes bytes = random_bytes(random, 300'000);
  for (int round = 0; round < 200; ++round) {
    // Anywhere, so that nothing is aligned.
    const std::size_t first = random.below(1000);
    const auto some = std::span(bytes).subspan(first, random.below(bytes.size() - first));
    const std::uint64_t seed = random.next();
    ASSERT_EQ(hash64(some, seed), peer64(some, seed)) << some.size() << " with seed " << seed;
    ASSERT_EQ(hash128(some), peer128(some)) << some.size();
  }
}

TEST(Hasher, PiecesGiveTheHashOfTheWhole) {
  Prng random(3);
  const Bytes bytes = random_bytes(random, 20'000);
  for (std::size_t size = 0; size <= 1100; ++size) {
    const auto some = std::span(bytes).first(size);
    ASSERT_EQ(streamed(random, some, 100), peer128(some)) << size;
  }
  for (const std::uint64_t piece_bytes_max : {1U, 63U, 64U, 65U, 255U, 256U, 257U, 1024U, 5000U, 20'000U}) {
    for (int round = 0; round < 20; ++round) {
      const auto some = std::span(bytes).first(random.below(bytes.size() + 1));
      ASSERT_EQ(streamed(random, some, piece_bytes_max), peer128(some)) << some.size();
    }
  }
  EXPECT_EQ(Hasher().digest(), hash128({}));
}

TEST(Hasher, TellsTheHashSoFarAndGoesOn) {
  Prng random(4);
  const Bytes bytes = random_bytes(random, 2000);
  Hasher hasher;
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    hasher.update(std::span(bytes).subspan(size - 1, 1));
    ASSERT_EQ(hasher.digest(), peer128(std::span(bytes).first(size))) << size;
  }
}

// The other tests run the one that is chosen here.
TEST(HashKernels, GiveTheSameSums) {
  using namespace hashing;
  Prng random(5);
  const Bytes bytes = random_bytes(random, 100 * stripe_bytes);
  const auto lanes_by = [&](TakeStripes take) {
    Sums sums{{1, 2, 3, 4, 5, 6, 7, 8}, 0};
    take(sums, bytes.data(), 37, default_secret.data());
    take(sums, bytes.data() + 37 * stripe_bytes, 63, default_secret.data());
    return sums.lanes;
  };
  const auto expected = lanes_by(take_stripes_plain());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_EQ(lanes_by(take_stripes_avx2()), expected);
  }
  if (__builtin_cpu_supports("avx512f")) {
    EXPECT_EQ(lanes_by(take_stripes_avx512()), expected);
  }
#endif
  EXPECT_EQ(lanes_by(take_stripes), expected);
}

}  // namespace
}  // namespace tutti
