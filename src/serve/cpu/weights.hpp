// The tensors of a model in the memory of this host, packed as the kernels read them. Const after load(): any
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "serve/cpu/matrix.hpp"
#include "serve/cpu/memory.hpp"
#include "serve/cpu/team.hpp"

namespace tutti::serve::cpu {

struct NormWeights {
  float* scale = nullptr;
  float* bias = nullptr;  // null: none
};

struct FeedForwardWeights {
  std::int64_t width = 0;
  Matrix up;  // below the gate where there is one, which takes whole panels
  float* up_bias = nullptr;
  Matrix down;
  float* down_bias = nullptr;
};

struct LayerWeights {
  NormWeights attention_norm;
  Matrix qkv;  // queries, keys and values, whole panels each
  float* qkv_bias = nullptr;
  float* query_norm = nullptr;
  float* key_norm = nullptr;
  Matrix output;
  float* output_bias = nullptr;
  NormWeights feed_forward_norm;
  FeedForwardWeights feed_forward;  // of a layer without experts
  Matrix router;                    // of a layer with them, always floats: it decides
  std::vector<FeedForwardWeights> experts;
};

// Rows of a tensor of the model as floats: a vector's numbers are its rows. Called by several threads at
// once.
using ReadRows = std::function<Result<>(const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                                        std::span<float> floats)>;

struct Weights {
  Matrix embedding;
  Matrix positions;  // where they are learned
  std::vector<LayerWeights> layers;
  NormWeights norm;
  Matrix head;  // may be the embedding
  Memory memory;

  // What load() reserves.
  static std::size_t bytes(const model::Shape& shape, WeightType type);
  static Result<Weights> load(const model::Shape& shape, WeightType type, const ReadRows& read, Team& team);
};

}  // namespace tutti::serve::cpu
