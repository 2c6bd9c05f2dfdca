#include "serve/cuda/resident.hpp"

#include "serve/cuda/inputs.hpp"
#include "serve/cuda/load.hpp"
#include "serve/cuda/sizes.hpp"

namespace tutti::serve::cuda {
namespace {

struct Device {
  int number = 0;
  std::string name;
  int multiprocessors = 0;
  bool overlaps = false;  // a kernel may begin before the one before it has ended
};

Result<Device> choose_device(const Options& options) {
  const int count = devices();
  const int number = options.peers && count > 0 ? device_of_rank(part_of(options), count) : options.device;
  if (number < 0 || number >= count) {
    return failed(count == 0 ? "no GPU can be used here" : "there is no GPU " + std::to_string(number))
        .remedy("`nvidia-smi` shows what the driver knows; on a CPU the model runs too, slower");
  }
  if (auto done = checked(cudaSetDevice(number), "choosing the device"); !done)
    return std::move(done).error();
  cudaDeviceProp properties{};
  auto done = checked(cudaGetDeviceProperties(&properties, number), "asking for its name");
  if (!done) return std::move(done).error();
  constexpr int oldest_major = 8;
  constexpr int overlapping_major = 9;
  if (properties.major < oldest_major)
    return failed(std::string(properties.name) + " is older than what is computed for: Ampere or later");
  return Device{number, properties.name, properties.multiProcessorCount,
                properties.major >= overlapping_major};
}

// Nobody reserves before all ranks have looked at what is free, and all have as many blocks as the one that
// has the fewest.
Result<MemoryPlan> plan_together(const model::Shape& whole, const Options& options, int multiprocessors) {
  std::size_t free_bytes = 0;
  std::size_t all_bytes = 0;
  if (auto done = checked(cudaMemGetInfo(&free_bytes, &all_bytes), "asking for its memory"); !done)
    return std::move(done).error();
  const auto shared_by = static_cast<std::uint64_t>(ranks_on_device_of(part_of(options), devices()));
  const auto free_of_all = least(options, static_cast<std::int64_t>(free_bytes / shared_by));
  if (!free_of_all) return free_of_all.error();
  auto plan = plan_memory(whole, options, static_cast<std::uint64_t>(*free_of_all), multiprocessors);
  if (!plan) return plan;
  const auto blocks = least(options, plan->blocks);
  if (!blocks) return blocks.error();
  plan->cache_bytes = plan->cache_bytes / static_cast<std::uint64_t>(plan->blocks + 1) *
                      static_cast<std::uint64_t>(*blocks + 1);
  plan->blocks = *blocks;
  return plan;
}

Limits limits_of(const model::Shape& shape, const Options& options, const MemoryPlan& plan) {
  return {.vocabulary = shape.vocabulary,
          .context = plan.context,
          .block_tokens = block_positions,
          .blocks = static_cast<std::int32_t>(plan.blocks),
          .step_tokens_max = options.step_tokens_max,
          .step_rows_max = options.step_rows_max,
          .adapters = static_cast<std::int32_t>(options.adapters.size())};
}

StepSizes sizes_of(const Options& options, const MemoryPlan& plan, const Limits& limits,
                   int multiprocessors) {
  return {.type = options.type,
          .tokens = options.step_tokens_max,
          .rows = options.step_rows_max,
          .context = plan.context,
          .input_bytes = input_bytes_max(limits),
          .multiprocessors = multiprocessors,
          .fast_attention = options.fast_attention,
          .part = part_of(options),
          .adapter_rank = lora::largest_rank(options.adapters),
          .is_fp8 = options.is_fp8};
}

std::size_t padded_rows_of(const Options& options) {
  return static_cast<std::size_t>(product_tokens(options.step_rows_max));
}

Result<ReservedMemory> reserve(const Options& options, const MemoryPlan& plan, const StepSizes& sizes) {
  ReservedMemory memory;
  const auto on_device = [](DeviceMemory& to, std::size_t bytes, const char* what) -> Result<> {
    auto reserved = reserve_device(bytes, what);
    if (!reserved) return std::move(reserved).error();
    to = std::move(*reserved);
    return {};
  };
  const auto on_host = [](PinnedMemory& to, std::size_t bytes, const char* what) -> Result<> {
    auto reserved = reserve_pinned(bytes, what);
    if (!reserved) return std::move(reserved).error();
    to = std::move(*reserved);
    return {};
  };
  const std::size_t samples_bytes =
      answer_slots * static_cast<std::size_t>(options.step_rows_max) * sizeof(Sample);
  const std::size_t tokens_bytes = answer_slots * 2 * padded_rows_of(options) * sizeof(std::int32_t);
  auto done = on_device(memory.weights, plan.weights_bytes, "the weights");
  if (done && plan.adapters_bytes > 0) done = on_device(memory.adapters, plan.adapters_bytes, "the adapters");
  if (done) done = on_device(memory.scratch, plan.scratch_bytes, "a step");
  if (done) done = on_device(memory.cache, plan.cache_bytes, "the cache");
  if (done) done = on_host(memory.inputs, sizes.input_bytes, "a step");
  if (done) done = on_host(memory.samples, samples_bytes, "choices");
  if (done) done = on_host(memory.tokens, tokens_bytes, "tokens");
  if (!done) return std::move(done).error();
  return memory;
}

// What the files hold and what no file holds, onto the device.
Result<Weights> load_weights(const model::Shape& whole, const model::Shape& shape, const Options& options,
                             const ReservedMemory& memory, const ReadRows& read, const ReadStored& stored) {
  const Part part = part_of(options);
  const WeightLayout layout(shape, options.type, Arena(memory.weights.get()), part, options.is_fp8);
  Weights weights = layout.weights();
  const PieceReader reader{read_part(whole, part, read), read_stored_part(whole, part, stored)};
  if (auto done = load_pieces(layout.pieces(), reader, options.device); !done) return std::move(done).error();
  if (auto done = load_lists(shape, weights); !done) return std::move(done).error();
  const AdapterLayout adapters(shape, options.type, options.adapters, Arena(memory.adapters.get()));
  for (std::size_t layer = 0; layer < adapters.tables_of_layers().size(); ++layer)
    weights.layers[layer].adapters = adapters.tables_of_layers()[layer];
  if (auto done = load_adapters(adapters, shape, options.type, options.adapters); !done)
    return std::move(done).error();
  return weights;
}

}  // namespace

Result<> Resident::enter() const { return checked(cudaSetDevice(options.device), "choosing the device"); }
std::size_t Resident::rows_max() const { return static_cast<std::size_t>(options.step_rows_max); }
std::size_t Resident::padded_rows() const { return padded_rows_of(options); }

Result<std::int64_t> least(const Options& options, std::int64_t number) {
  return options.peers ? options.peers->least(number) : Result<std::int64_t>(number);
}

Result<std::unique_ptr<Resident>> make_resident(const model::Shape& whole, Options options,
                                                const ReadRows& read, const ReadStored& stored) {
  // What comm puts on a queue is not recorded.
  if (options.peers) options.graphs = false;
  const model::Shape shape = shape_of_part(whole, part_of(options));
  for (lora::Adapter& adapter : options.adapters) adapter = adapter.of_part(whole, part_of(options));
  auto device = choose_device(options);
  if (!device) return std::move(device).error();
  options.device = device->number;
  options.overlaps = options.overlaps && device->overlaps;
  auto plan = plan_together(whole, options, device->multiprocessors);
  if (!plan) return std::move(plan).error();
  const Limits limits = limits_of(shape, options, *plan);
  const StepSizes sizes = sizes_of(options, *plan, limits, device->multiprocessors);
  auto memory = reserve(options, *plan, sizes);
  if (!memory) return std::move(memory).error();
  auto stream = make_stream();
  if (!stream) return std::move(stream).error();
  if (options.peers) options.peers->use_queue(stream->get());
  if (auto done = checked(cudaDeviceSynchronize(), "reserving its memory"); !done)
    return std::move(done).error();
  auto weights = load_weights(whole, shape, options, *memory, read, stored);
  if (!weights) return std::move(weights).error();
  Arena arena(memory->scratch.get());
  const Scratch scratch(shape, sizes, arena);
  return std::unique_ptr<Resident>(new Resident{.shape = shape,
                                                .options = std::move(options),
                                                .device_name = std::move(device->name),
                                                .plan = *plan,
                                                .limits = limits,
                                                .sizes = sizes,
                                                .memory = std::move(*memory),
                                                .stream = std::move(*stream),
                                                .scratch = scratch,
                                                .weights = std::move(*weights)});
}

}  // namespace tutti::serve::cuda
