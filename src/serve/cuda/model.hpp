// The port of serve/model on an NVIDIA GPU: weights in bf16 or fp8, keys in bf16 (or both in f32, to compare
// with), all memory reserved at the start, steps of one token a sequence as graphs. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "serve/cuda/kernels/kernels.hpp"
#include "serve/lora/adapter.hpp"
#include "serve/model/model.hpp"
#include "serve/model/peers.hpp"
#include "serve/split/split.hpp"

namespace tutti::serve::cuda {

struct Options {
  Type type = Type::bf16;          // of weights, keys and values
  bool is_fp8 = false;             // the matrices of the layers, beside bf16
  int device = 0;                  // of a rank: the one that comes to it
  std::uint64_t memory_bytes = 0;  // of the device that may be taken in all; 0: a share of what is free
  double memory_share = 0.9;
  std::int64_t context_max = 0;   // 0: what the model can
  std::uint64_t cache_bytes = 0;  // of keys and values, of all ranks together; 0: what the rest leaves
  std::int64_t blocks_max = 0;    // of keys and values; 0: as many as fit
  std::int32_t step_tokens_max = 2048;
  std::int32_t step_rows_max = 256;
  bool graphs = true;          // steps of one token a sequence are recorded once and replayed
  bool overlaps = true;        // a kernel fetches its weights while the one before it ends
  bool tunes = true;           // several ways of each matrix product are timed at the start
  bool fast_attention = true;  // where there is one for the model's heads
  // Who else computes this model, all of them on this machine: this one has a part of it, and records no
  // steps. Null: nobody.
  std::shared_ptr<Peers> peers;
  std::vector<lora::Adapter> adapters;  // a chunk's adapter counts them from 1 on
};

// A folder of Hugging Face or of a run's export: config.json and safetensors. Without a GPU, or without CUDA
// in this build, a failure that says so.
Result<std::unique_ptr<Model>> open_model(const std::string& folder, const Options& options);
// The same with weights from anywhere.
Result<std::unique_ptr<Model>> make_model(const model::Shape& shape, const Options& options,
                                          const ReadRows& read, const ReadStored& stored = nullptr);

// GPUs that this process can use; 0 where there is no driver or no CUDA in this build.
int devices();

// What such a model, or this rank's part of it, takes: told before anything is reserved.
struct MemoryPlan {
  std::uint64_t weights_bytes = 0;
  std::uint64_t adapters_bytes = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t cache_bytes = 0;
  std::int64_t blocks = 0;  // that sequences may have; one more is there for tokens of nobody
  std::int64_t context = 0;
};
Result<MemoryPlan> plan_memory(const model::Shape& whole, const Options& options, std::uint64_t free_bytes,
                               int multiprocessors);

Part part_of(const Options& options);
// Of so many devices, those that a rank computes on: one after the other, and from the first again.
int device_of_rank(const Part& part, int devices);
int ranks_on_device_of(const Part& part, int devices);

}  // namespace tutti::serve::cuda
