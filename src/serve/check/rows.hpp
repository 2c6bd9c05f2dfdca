// Rows of logits of one model beside those of another. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "serve/check/check.hpp"
#include "serve/model/model.hpp"

namespace tutti::serve {

using Rows = std::vector<std::vector<float>>;

struct CheckedSequence {
  std::vector<Token> tokens;
  std::int32_t adapter = 0;
};

std::vector<Token> made_tokens(std::int64_t vocabulary, std::size_t count, std::uint64_t seed);

// Backwards, so that nothing lies where it would by chance.
std::vector<BlockId> made_blocks(std::size_t sequence, std::int64_t context);

// The logits behind each token, sequence after sequence. Their tokens, as many of each, come side by side in
// such pieces, the last of them again and again.
Result<Rows> rows_of(Model& model, const std::vector<CheckedSequence>& sequences,
                     const std::vector<std::size_t>& pieces);

// The distance of two rows in relation to their length, the largest or, of those in order, the one in the
// middle; what is no number is infinitely far.
double distance(const Rows& rows, const Rows& expected, bool in_the_middle);

// Whose rows were computed how.
struct Checked {
  std::string family;
  const char* type = "";  // of the weights
  const char* way = "";
  bool in_the_middle = false;
};
// Tells how far off they are; more than is allowed is a failure.
Result<> note(const Print& print, const Checked& checked, double error, double allowed);

}  // namespace tutti::serve
