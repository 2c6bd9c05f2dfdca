// What a step is computed in, on the device: reserved once, for the largest step. Pure but for what the
// pointers point to.
#pragma once

#include <cstdint>

#include "learn/model/shape.hpp"
#include "serve/cuda/arena.hpp"
#include "serve/cuda/kernels/kernels.hpp"

namespace tutti::serve::cuda {

struct StepSizes {
  Type type = Type::bf16;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t context = 0;
  std::size_t input_bytes = 0;
  int multiprocessors = 0;
  bool fast_attention = true;
  std::int64_t adapter_rank = 0;  // the largest; 0: no adapters
};

struct Scratch {
  float* stream = nullptr;  // what all layers add to
  void* normed = nullptr;
  void* qkv = nullptr;
  void* mixed = nullptr;  // values, weighed by attention
  void* wide = nullptr;
  void* bent = nullptr;
  float* logits = nullptr;
  float* cosines = nullptr;
  float* sines = nullptr;
  float* partials = nullptr;  // of split contexts
  std::uint32_t* arrived = nullptr;
  Routing routing;
  float* router_scores = nullptr;
  void* expert_out = nullptr;
  float* shrunk = nullptr;  // by adapters
  std::byte* inputs = nullptr;
  Sample* samples = nullptr;
  std::byte* workspace = nullptr;

  Scratch(const model::Shape& shape, const StepSizes& sizes, Arena& arena);
};

// The heads that one block of threads of attention has, counted over all heads.
std::int64_t head_groups(const model::Shape& shape);

}  // namespace tutti::serve::cuda
