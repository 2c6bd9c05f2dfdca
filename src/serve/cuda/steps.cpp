#include "serve/cuda/steps.hpp"

#include <array>

#include "serve/cuda/buckets.hpp"
#include "serve/model/check.hpp"

namespace tutti::serve::cuda {
namespace {

// Prompts of other lengths take the way that the library thinks best.
constexpr std::array<std::int32_t, 4> tuned_prompt_tokens{512, 1024, 2048, 4096};

}  // namespace

Steps::Steps(const Resident& resident, std::unique_ptr<Products> products, OwnEvent sent)
    : resident_(resident),
      products_(std::move(products)),
      sent_(std::move(sent)),
      forward_(resident.shape, resident.weights, resident.scratch, *products_, resident.memory.cache.get(),
               resident.plan.blocks + 1, resident.sizes, resident.options.peers.get()),
      overlaps_(resident.options.overlaps),
      buckets_(bucket_sizes(resident.options.step_rows_max)) {}

// Nothing is given back that is still in use.
Steps::~Steps() { static_cast<void>(cudaStreamSynchronize(resident_.stream.get())); }

Result<std::unique_ptr<Steps>> Steps::make(const Resident& resident) {
  auto products = Products::make(resident.scratch.workspace);
  if (!products) return std::move(products).error();
  auto sent = make_event();
  if (!sent) return std::move(sent).error();
  std::unique_ptr<Steps> made(new Steps(resident, std::move(*products), std::move(*sent)));
  // The steps of warming up are taken by all ranks together.
  if (auto all_are_here = least(resident.options, 0); !all_are_here) return std::move(all_are_here).error();
  if (auto done = made->warm_up(); !done) return std::move(done).error();
  return made;
}

Result<> Steps::run(std::span<const Chunk> chunks, std::span<const std::int32_t> places) {
  rows_ = 0;
  if (auto done = resident_.enter(); !done) return done;
  if (auto fine = check_step(chunks, resident_.limits); !fine) return fine;
  for (const Chunk& chunk : chunks) {
    if (chunk.follows >= static_cast<std::int32_t>(places.size()))
      return invalid("a chunk follows a choice that was not asked for");
  }
  StepCounts counts = count_step(chunks, block_positions, forward_.tile_tokens());
  if (counts.tokens == 0) return {};
  const bool is_recorded = counts.is_plain && resident_.options.graphs;
  const std::int32_t rows = counts.rows;
  if (counts.is_plain) {
    counts.tokens = counts.alone = counts.rows = bucket_of(buckets_, counts.rows);
  }
  if (input_bytes(counts) > input_bytes_max(resident_.limits))
    return invalid("the sequences of a step have more blocks than were reserved for");
  if (auto done = send(chunks, counts, places); !done) return done;
  if (is_recorded) {
    auto done =
        checked(cudaGraphLaunch(graphs_.at(counts.rows).get(), resident_.stream.get()), "computing a step");
    if (!done) return done;
  } else {
    forward_.run(view_of(counts), queue());
    if (auto done = launched(); !done) return done;
  }
  rows_ = rows;
  row_places_ = row_places(chunks);
  return {};
}

// Every kind of step once, with tokens of nobody: what the driver loads when it is first asked is loaded, and
// steps of one token a sequence are recorded.
Result<> Steps::warm_up() {
  const Options& options = resident_.options;
  if (options.tunes) {
    for (const std::int32_t rows : buckets_) {
      if (rows > few_rows_max || options.type == Type::f32) {
        if (auto done = forward_.tune(rows, queue()); !done) return done;
      }
    }
    for (const std::int32_t tokens : tuned_prompt_tokens) {
      if (tokens > options.step_tokens_max) continue;
      if (auto done = forward_.tune(tokens, queue()); !done) return done;
    }
  }
  // A driver that cannot record kernels that overlap, with products or at all, can record them one after
  // the other.
  auto recorded = run_buckets();
  if (!recorded && overlaps_) {
    forward_.keep_from_products();
    recorded = run_buckets();
  }
  if (!recorded && overlaps_) {
    overlaps_ = false;
    recorded = run_buckets();
  }
  if (!recorded) return recorded;
  return finish();
}

Result<> Steps::run_buckets() {
  graphs_.clear();
  for (const std::int32_t rows : buckets_) {
    const StepCounts counts{.tokens = rows, .alone = rows, .rows = rows, .is_plain = true};
    if (auto done = send({}, counts, {}); !done) return done;
    forward_.run(view_of(counts), queue());
    if (auto done = launched(); !done) return done;
    if (!resident_.options.graphs) continue;
    if (auto done = record(counts); !done) return done;
  }
  return {};
}

Result<> Steps::record(const StepCounts& counts) {
  if (auto done = finish(); !done) return done;
  constexpr const char* doing = "recording a step";
  cudaStream_t stream = resident_.stream.get();
  auto begun = checked(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), doing);
  if (!begun) return begun;
  forward_.run(view_of(counts), queue());
  cudaGraph_t graph = nullptr;
  auto ended = checked(cudaStreamEndCapture(stream, &graph), doing);
  const OwnRecording recording(graph);
  if (auto fine = launched(); !fine) return fine;
  if (!ended) return ended;
  cudaGraphExec_t recorded = nullptr;
  if (auto made = checked(cudaGraphInstantiate(&recorded, graph, 0), doing); !made) return made;
  graphs_.emplace(counts.rows, OwnGraph(recorded));
  return checked(cudaGraphUpload(recorded, stream), doing);
}

// The inputs of a step onto the device.
Result<> Steps::send(std::span<const Chunk> chunks, const StepCounts& counts,
                     std::span<const std::int32_t> places) {
  // The last step's are still on their way if nobody asked for its tokens.
  if (auto done = checked(cudaEventSynchronize(sent_.get()), "sending a step"); !done) return done;
  std::byte* const inputs = resident_.memory.inputs.get();
  const std::size_t bytes = pack_step(chunks, counts, block_positions, forward_.tile_tokens(),
                                      {inputs, resident_.sizes.input_bytes}, places);
  auto copied = checked(cudaMemcpyAsync(resident_.scratch.inputs, inputs, bytes, cudaMemcpyHostToDevice,
                                        resident_.stream.get()),
                        "sending a step");
  if (!copied) return copied;
  return checked(cudaEventRecord(sent_.get(), resident_.stream.get()), "sending a step");
}

StepView Steps::view_of(const StepCounts& counts) const {
  const InputLayout layout(counts.tokens, counts.rows, counts.tiles);
  const std::byte* const inputs = resident_.scratch.inputs;
  const auto numbers = [&](std::size_t part) { return reinterpret_cast<const std::int32_t*>(inputs + part); };
  return {.tokens = {.count = counts.tokens,
                     .token = numbers(layout.tokens()),
                     .position = numbers(layout.positions()),
                     .table_at = numbers(layout.table_places()),
                     .tables = numbers(layout.tables()),
                     .adapter = numbers(layout.adapters())},
          .alone = counts.alone,
          .tiles = reinterpret_cast<const Tile*>(inputs + layout.tiles()),
          .tile_count = counts.tiles,
          .rows = counts.is_plain ? nullptr : numbers(layout.rows()),
          .row_count = counts.rows,
          .largest = resident_.scratch.chosen};
}

Result<> Steps::launched() {
  auto fine = checked(cudaGetLastError(), "computing a step");
  auto products = products_->take_problem();
  if (fine && products) return forward_.problem();
  return !fine ? std::move(fine) : std::move(products);
}

Result<> Steps::finish() const {
  auto done = checked(cudaStreamSynchronize(resident_.stream.get()), "computing a step");
  const auto& peers = resident_.options.peers;
  return done && peers ? peers->check() : std::move(done);
}

}  // namespace tutti::serve::cuda
