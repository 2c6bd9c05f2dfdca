// The port of serve/model on this host's CPUs: weights packed for its instruction set, keys and values as
// floats, all memory reserved at the start. One thread at a time; it has others of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "serve/cpu/kernels.hpp"
#include "serve/cpu/weights.hpp"
#include "serve/lora/adapter.hpp"
#include "serve/model/model.hpp"
#include "serve/model/peers.hpp"

namespace tutti::serve::cpu {

struct Options {
  WeightType weights = WeightType::f32;
  int threads = 0;               // of this rank; 0: one a core that this process may use, shared by all ranks
  std::int64_t context_max = 0;  // 0: what the model can
  std::uint64_t cache_bytes = 0;  // of all ranks together; 0: a share of the memory that the weights leave
  double cache_share = 0.5;       // of it; never more than all rows of a step can fill, or 2 GiB
  std::int32_t step_tokens_max = 512;
  std::int32_t step_rows_max = 64;
  const Kernels* kernels = nullptr;  // null: the best that this CPU can run
  // Who else computes this model, all of them on this machine: this one has a part of it. Null: nobody.
  std::shared_ptr<Peers> peers;
  std::vector<lora::Adapter> adapters;  // a chunk's adapter counts them from 1 on
};

// A folder of Hugging Face or of a run's export: config.json and safetensors.
Result<std::unique_ptr<Model>> open_model(const std::string& folder, const Options& options);
// The same with weights from anywhere.
Result<std::unique_ptr<Model>> make_model(const model::Shape& shape, const Options& options,
                                          const ReadRows& read);

// What such a model, or this rank's part of it, takes: told before anything is reserved.
struct MemoryPlan {
  std::uint64_t weights_bytes = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t cache_bytes = 0;
  std::int64_t blocks = 0;
  std::int64_t context = 0;
};
Result<MemoryPlan> plan_memory(const model::Shape& whole, const Options& options, std::int64_t threads,
                               std::uint64_t machine_free_bytes);

Part part_of(const Options& options);

}  // namespace tutti::serve::cpu
