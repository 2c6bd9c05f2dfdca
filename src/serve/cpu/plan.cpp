#include <algorithm>
#include <limits>

#include "serve/cpu/cache.hpp"
#include "serve/cpu/forward.hpp"
#include "serve/cpu/instructions.hpp"
#include "serve/cpu/model.hpp"
#include "serve/model/arena.hpp"

namespace tutti::serve::cpu {
namespace {

// Of one step: what a thoughtless number would reserve is not worth having.
constexpr std::int32_t step_tokens_limit = 16'384;
constexpr std::int32_t step_rows_limit = 4'096;

// What a cache takes that nobody gave a size, unless one sequence needs more.
constexpr std::uint64_t unasked_cache_bytes_max = std::uint64_t{2} << 30;

Result<> check_options(const Options& options) {
  if (options.step_tokens_max < 1 || options.step_tokens_max > step_tokens_limit)
    return invalid("the tokens of a step must be from 1 to " + std::to_string(step_tokens_limit));
  if (options.step_rows_max < 1 || options.step_rows_max > step_rows_limit)
    return invalid("the rows of a step must be from 1 to " + std::to_string(step_rows_limit));
  if (!(options.cache_share > 0 && options.cache_share <= 1))
    return invalid("the cache's share of the free memory must be above 0 and at most 1");
  if (options.context_max < 0) return invalid("the context must not be negative");
  return {};
}

Error too_small(std::uint64_t free_bytes, const std::string& what, std::uint64_t needed) {
  return invalid(what + " takes " + shown_bytes(needed) + ", and " + shown_bytes(free_bytes) + " is free")
      .remedy("take smaller weights, a shorter context or a machine with more memory");
}

}  // namespace

Part part_of(const Options& options) {
  return options.peers == nullptr ? Part{} : Part{options.peers->rank(), options.peers->count()};
}

Result<MemoryPlan> plan_memory(const model::Shape& whole, const Options& options, std::int64_t threads,
                               std::uint64_t machine_free_bytes) {
  if (auto fine = check_options(options); !fine) return std::move(fine).error();
  const Part part = part_of(options);
  const model::Shape shape = shape_of_part(whole, part);
  // Ranks of one machine share what it has.
  const auto ranks = static_cast<std::uint64_t>(part.count);
  const std::uint64_t free_bytes = machine_free_bytes / ranks;
  const std::uint64_t cache_bytes = options.cache_bytes / ranks;
  MemoryPlan plan;
  plan.context = options.context_max > 0 ? std::min(options.context_max, shape.context) : shape.context;
  plan.weights_bytes =
      Weights::bytes(shape, options.weights, part) + Adapters::bytes(shape, options.adapters);
  Arena scratch;
  const Weights none;
  const Adapters no_adapters;
  const Forward counted(shape, none, no_adapters, kernels(), Cache(),
                        {options.step_tokens_max, options.step_rows_max, plan.context, threads,
                         Adapters::width(options.adapters)},
                        scratch, options.peers.get());
  plan.scratch_bytes = scratch.used();
  const std::uint64_t before_cache = plan.weights_bytes + plan.scratch_bytes;
  if (before_cache >= free_bytes) return too_small(free_bytes, "the model", before_cache);

  const auto block_bytes = static_cast<std::uint64_t>(Cache::floats_of_block(shape)) * sizeof(float);
  const std::uint64_t sequence_blocks =
      static_cast<std::uint64_t>(plan.context + block_positions - 1) / block_positions;
  const std::uint64_t left = free_bytes - before_cache;
  if (cache_bytes > left) return too_small(left, "the cache", cache_bytes);
  const auto share = static_cast<std::uint64_t>(static_cast<double>(left) * options.cache_share);
  const std::uint64_t of_use = std::min(sequence_blocks * static_cast<std::uint64_t>(options.step_rows_max),
                                        std::max(sequence_blocks, unasked_cache_bytes_max / block_bytes));
  const std::uint64_t blocks =
      options.cache_bytes > 0 ? cache_bytes / block_bytes : std::min(share / block_bytes, of_use);
  if (blocks < sequence_blocks && options.cache_bytes > 0)
    return invalid("the cache of one sequence of " + std::to_string(plan.context) + " tokens takes " +
                   shown_bytes(sequence_blocks * block_bytes * ranks) + ", and it was given " +
                   shown_bytes(options.cache_bytes))
        .remedy("give it more with --cache, or take a shorter --context");
  if (blocks < sequence_blocks) {
    return too_small(share, "the cache of one sequence of " + std::to_string(plan.context) + " tokens",
                     sequence_blocks * block_bytes);
  }
  plan.blocks =
      static_cast<std::int64_t>(std::min<std::uint64_t>(blocks, std::numeric_limits<BlockId>::max()));
  plan.cache_bytes = static_cast<std::uint64_t>(plan.blocks) * block_bytes;
  return plan;
}

}  // namespace tutti::serve::cpu
