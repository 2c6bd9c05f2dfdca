#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "serve/cuda/inputs.hpp"
#include "serve/cuda/model.hpp"
#include "serve/cuda/scratch.hpp"
#include "serve/cuda/sizes.hpp"
#include "serve/cuda/weights.hpp"

namespace tutti::serve::cuda {
namespace {

// Of one step: what a thoughtless number would reserve is not worth having.
constexpr std::int32_t step_tokens_limit = 32'768;
constexpr std::int32_t step_rows_limit = 4'096;
// What a row of a norm and a head have room for in a block of threads.
constexpr std::int64_t hidden_max = 16'384;
constexpr std::int64_t head_size_max = 512;
// What the driver takes beside what is reserved: kernels, recorded steps, the library of matrix products.
constexpr std::uint64_t driver_bytes = std::uint64_t{512} << 20;

std::string shown(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text.data();
}

Result<> check_options(const Options& options) {
  if (options.step_tokens_max < 1 || options.step_tokens_max > step_tokens_limit)
    return invalid("the tokens of a step must be from 1 to " + std::to_string(step_tokens_limit));
  if (options.step_rows_max < 1 || options.step_rows_max > step_rows_limit)
    return invalid("the rows of a step must be from 1 to " + std::to_string(step_rows_limit));
  if (options.step_rows_max > options.step_tokens_max)
    return invalid("a step cannot have more rows than tokens");
  if (!(options.memory_share > 0 && options.memory_share <= 1))
    return invalid("the share of the GPU's free memory must be above 0 and at most 1");
  if (options.context_max < 0 || options.blocks_max < 0)
    return invalid("the context and the number of blocks must not be negative");
  if (options.is_fp8 && options.type != Type::bf16)
    return invalid("beside weights of fp8 all else is computed in bf16");
  return {};
}

Result<> check_shape(const model::Shape& shape) {
  if (shape.hidden > hidden_max)
    return invalid("a hidden size above " + std::to_string(hidden_max) + " is not computed on GPUs");
  if (shape.head_size > head_size_max)
    return invalid("a head size above " + std::to_string(head_size_max) + " is not computed on GPUs");
  if (shape.experts.count > experts_max || shape.experts.chosen > experts_chosen_max)
    return invalid("more than " + std::to_string(experts_max) + " experts, or more than " +
                   std::to_string(experts_chosen_max) + " of a token, are not computed on GPUs");
  return {};
}

Error too_small(std::uint64_t there, const std::string& what, std::uint64_t needed) {
  return invalid(what + " takes " + shown(needed) + " of the GPU, and there is " + shown(there))
      .remedy("take a shorter context, smaller steps or a GPU with more memory");
}

}  // namespace

Part part_of(const Options& options) {
  return options.peers == nullptr ? Part{} : Part{options.peers->rank(), options.peers->count()};
}

int device_of_rank(const Part& part, int devices) { return part.rank % devices; }

int ranks_on_device_of(const Part& part, int devices) {
  return (part.count - 1 - device_of_rank(part, devices)) / devices + 1;
}

Result<MemoryPlan> plan_memory(const model::Shape& whole, const Options& options, std::uint64_t free_bytes,
                               int multiprocessors) {
  if (auto fine = check_options(options); !fine) return std::move(fine).error();
  if (auto fine = check_shape(whole); !fine) return std::move(fine).error();
  const Part part = part_of(options);
  const model::Shape shape = shape_of_part(whole, part);
  MemoryPlan plan;
  plan.context = options.context_max > 0 ? std::min(options.context_max, shape.context) : shape.context;
  plan.weights_bytes = WeightLayout(shape, options.type, Arena(), part, options.is_fp8).bytes();
  plan.adapters_bytes = AdapterLayout(shape, options.type, options.adapters, Arena()).bytes();
  const Limits limits{.context = plan.context,
                      .block_tokens = block_positions,
                      .step_tokens_max = options.step_tokens_max,
                      .step_rows_max = options.step_rows_max};
  Arena arena;
  const Scratch counted(shape,
                        {.type = options.type,
                         .tokens = options.step_tokens_max,
                         .rows = options.step_rows_max,
                         .context = plan.context,
                         .input_bytes = input_bytes_max(limits),
                         .multiprocessors = multiprocessors,
                         .part = part,
                         .adapter_rank = lora::largest_rank(options.adapters),
                         .is_fp8 = options.is_fp8},
                        arena);
  plan.scratch_bytes = arena.used();

  if (options.memory_bytes > free_bytes)
    return too_small(free_bytes, "what it may take", options.memory_bytes);
  const std::uint64_t budget =
      options.memory_bytes > 0
          ? options.memory_bytes
          : static_cast<std::uint64_t>(static_cast<double>(free_bytes) * options.memory_share);
  const std::uint64_t before_cache =
      plan.weights_bytes + plan.adapters_bytes + plan.scratch_bytes + driver_bytes;
  if (before_cache >= budget) return too_small(budget, "the model", before_cache);
  const std::uint64_t block_bytes =
      static_cast<std::uint64_t>(2 * shape.layers * shape.kv_heads * shape.head_size * block_positions) *
      bytes_of(options.type);
  const std::uint64_t sequence_blocks =
      static_cast<std::uint64_t>((plan.context + block_positions - 1) / block_positions);
  const std::uint64_t left = budget - before_cache;
  const auto ranks = static_cast<std::uint64_t>(part.count);
  const std::uint64_t cache_bytes = options.cache_bytes > 0 ? options.cache_bytes / ranks : left;
  if (cache_bytes > left) return too_small(left, "the cache", cache_bytes);
  const std::uint64_t blocks = cache_bytes / block_bytes;
  // One is for tokens of nobody.
  const std::uint64_t blocks_min = sequence_blocks + 1;
  if (blocks < blocks_min && options.cache_bytes > 0)
    return invalid("the cache of one sequence of " + std::to_string(plan.context) + " tokens takes " +
                   shown(blocks_min * block_bytes * ranks) + ", and it was given " +
                   shown(options.cache_bytes))
        .remedy("give it more with --cache, or take a shorter --context");
  if (blocks < blocks_min) {
    return too_small(left, "the cache of one sequence of " + std::to_string(plan.context) + " tokens",
                     blocks_min * block_bytes);
  }
  const auto blocks_max = options.blocks_max > 0 ? static_cast<std::uint64_t>(options.blocks_max)
                                                 : std::uint64_t{std::numeric_limits<BlockId>::max()};
  plan.blocks = static_cast<std::int64_t>(std::min(blocks - 1, blocks_max));
  if (plan.blocks < static_cast<std::int64_t>(sequence_blocks))
    return invalid("one sequence of " + std::to_string(plan.context) + " tokens takes " +
                   std::to_string(sequence_blocks) + " blocks, and there are " + std::to_string(plan.blocks));
  plan.cache_bytes = static_cast<std::uint64_t>(plan.blocks + 1) * block_bytes;
  return plan;
}

}  // namespace tutti::serve::cuda
