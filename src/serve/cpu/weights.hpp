// The tensors of a model in the memory of this host, packed as the kernels read them. Const after load(): any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "serve/cpu/matrix.hpp"
#include "serve/cpu/memory.hpp"
#include "serve/cpu/team.hpp"
#include "serve/split/split.hpp"

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

struct Weights {
  Matrix embedding;
  Matrix positions;  // where they are learned
  std::vector<LayerWeights> layers;
  NormWeights norm;
  Matrix head;  // may be the embedding, or some panels of it
  Memory memory;

  // What load() reserves. The shape is the part's, which has the head of its own tokens.
  static std::size_t bytes(const model::Shape& shape, WeightType type, const Part& part = {});
  static Result<Weights> load(const model::Shape& shape, WeightType type, const ReadRows& read, Team& team,
                              const Part& part = {});
};

}  // namespace tutti::serve::cpu
