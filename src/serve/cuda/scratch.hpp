// What a step is computed in, on the device: reserved once, for the largest step. Pure but for what the
// pointers point to.
#pragma once

#include <cstdint>

#include "learn/model/shape.hpp"
#include "serve/cuda/kernels/kernels.hpp"
#include "serve/model/arena.hpp"
#include "serve/split/split.hpp"

namespace tutti::serve::cuda {

struct StepSizes {
  Type type = Type::bf16;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t context = 0;
  std::size_t input_bytes = 0;
  int multiprocessors = 0;
  bool fast_attention = true;
  Part part;
  std::int64_t adapter_rank = 0;  // the largest; 0: no adapters
  bool is_fp8 = false;            // the weights of the layers
};

struct Scratch {
  float* stream = nullptr;  // what all layers add to
  void* normed = nullptr;
  void* qkv = nullptr;
  void* mixed = nullptr;  // values, weighed by attention
  void* wide = nullptr;
  void* bent = nullptr;
  float* part_logits = nullptr;  // that this rank computes; those of the only rank are all of them
  float* gathered = nullptr;     // of each rank, on the first of several
  float* logits = nullptr;
  float* cosines = nullptr;
  float* sines = nullptr;
  float* partials = nullptr;  // of split contexts
  std::uint32_t* arrived = nullptr;
  Routing routing;
  float* router_scores = nullptr;
  void* expert_out = nullptr;
  float* known = nullptr;        // some rows of what the head reads, on the way to
  double* known_sums = nullptr;  // what is wanted of it, a row a choice
  float* shrunk = nullptr;       // by adapters
  void* widened = nullptr;       // a matrix of fp8, for products of many rows
  std::byte* inputs = nullptr;
  Sample* samples = nullptr;
  std::int32_t* chosen = nullptr;  // the largest of each row, then what was drawn
  std::byte* workspace = nullptr;

  Scratch(const model::Shape& shape, const StepSizes& sizes, Arena& arena);
};

// The rows of `known`.
constexpr std::int64_t known_rows = 64;

// The heads that one block of threads of attention has, counted over all heads.
std::int64_t head_groups(const model::Shape& shape);

}  // namespace tutti::serve::cuda
