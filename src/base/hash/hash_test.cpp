#include "base/hash/hash.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.hpp"

namespace tutti {
namespace {

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

TEST(Hasher, PiecesGiveTheHashOfTheWhole) {
  std::string text;
  for (int line = 0; line < 1000; ++line) text += std::to_string(line * line);
  Hasher hasher;
  for (std::size_t at = 0; at < text.size(); at += 37)
    hasher.update(as_bytes(std::string_view(text).substr(at, 37)));
  EXPECT_EQ(hasher.digest(), hash128(as_bytes(text)));
  EXPECT_EQ(Hasher().digest(), hash128({}));
}

}  // namespace
}  // namespace tutti
