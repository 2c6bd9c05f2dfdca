// How much memory a rank of a mesh needs, counted from what the trainer keeps. An estimate for the fullest
// rank: the first stage of a pipeline, which holds the most microbatches. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "learn/model/shape.hpp"
#include "learn/plan/mesh.hpp"
#include "learn/recipe/recipe.hpp"

namespace tutti::recipe {

struct Memory {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;    // moments, and master weights where they are apart
  std::int64_t activations = 0;  // of all microbatches under way
  std::int64_t logits = 0;
  std::int64_t messages = 0;    // what a pipeline sends and receives, until it has arrived
  std::int64_t checkpoint = 0;  // the copy that is written while training goes on
  std::int64_t overhead = 0;    // what the libraries keep for themselves, and what lives for one operation
  // Of a rank on a GPU, beside all that: that copy lies in the memory of its host.
  std::int64_t on_host = 0;

  std::int64_t total() const {
    return weights + gradients + optimizer + activations + logits + messages + checkpoint + overhead;
  }
  // "2.1 GiB weights, 2.1 GiB gradients, …"
  std::string text() const;
};

// In how many pieces the logits of so many rows are computed one after the other, so that they are few at a
// time.
std::int64_t logit_pieces(std::int64_t rows, std::int64_t columns, Place place);

Memory memory_of(const Recipe& recipe, const model::Shape& shape, const plan::Mesh& mesh, Place place);

}  // namespace tutti::recipe
