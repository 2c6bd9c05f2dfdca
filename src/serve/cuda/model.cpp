#include "serve/cuda/model.hpp"

#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include "serve/batch/choose.hpp"
#include "serve/cuda/buckets.hpp"
#include "serve/cuda/device.hpp"
#include "serve/cuda/forward.hpp"
#include "serve/cuda/inputs.hpp"
#include "serve/cuda/load.hpp"
#include "serve/cuda/products.hpp"
#include "serve/model/check.hpp"

namespace tutti::serve::cuda {
namespace {

// Prompts of other lengths take the way that the library thinks best.
constexpr std::array<std::int32_t, 4> tuned_prompt_tokens{512, 1024, 2048, 4096};

// What the reference alone does: such rows are chosen on the host.
bool is_simple(const Choice& choice) {
  return choice.biases.empty() && choice.seen.empty() && choice.allowed.empty() && choice.logprobs < 0;
}

class CudaModel final : public Model {
 public:
  CudaModel(const model::Shape& shape, const Options& options) : shape_(shape), options_(options) {}

  ~CudaModel() override {
    // Nothing is given back that is still in use.
    if (stream_) static_cast<void>(cudaStreamSynchronize(stream_.get()));
  }

  Result<> load(const ReadRows& read) {
    if (auto done = choose_device(); !done) return done;
    if (auto done = reserve(); !done) return done;
    const WeightLayout layout(shape_, options_.type, Arena(weights_memory_.get()));
    weights_ = layout.weights();
    if (auto done = load_pieces(layout.pieces(), read, options_.device); !done) return done;
    if (auto done = load_lists(shape_, weights_); !done) return done;
    if (auto done = load_adapters(); !done) return done;
    auto products = Products::make(scratch_->workspace);
    if (!products) return std::move(products).error();
    products_ = std::move(*products);
    forward_.emplace(shape_, weights_, *scratch_, *products_, cache_memory_.get(), plan_.blocks + 1, sizes_);
    return warm_up();
  }

  const Limits& limits() const override { return limits_; }

  Result<> step(std::span<const Chunk> chunks) override {
    rows_ = 0;
    if (auto done = enter(); !done) return done;
    if (auto fine = check_step(chunks, limits_); !fine) return fine;
    StepCounts counts = count_step(chunks, block_positions, forward_->tile_tokens());
    if (counts.tokens == 0) return {};
    const bool is_recorded = counts.is_plain && options_.graphs;
    const std::int32_t rows = counts.rows;
    if (counts.is_plain) {
      counts.tokens = counts.alone = counts.rows = bucket_of(buckets_, counts.rows);
    }
    if (input_bytes(counts) > input_bytes_max(limits_))
      return invalid("the sequences of a step have more blocks than were reserved for");
    if (auto done = send(chunks, counts); !done) return done;
    if (is_recorded) {
      auto done = checked(cudaGraphLaunch(graphs_.at(counts.rows).get(), stream_.get()), "computing a step");
      if (!done) return done;
    } else {
      forward_->run(view_of(counts), queue());
      if (auto done = launched(); !done) return done;
    }
    rows_ = rows;
    return {};
  }

  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    if (auto done = enter(); !done) return std::move(done).error();
    std::vector<Chosen> chosen(choices.size());
    std::vector<std::size_t> sampled;
    auto* const samples = reinterpret_cast<Sample*>(pinned_samples_.get());
    for (std::size_t at = 0; at < choices.size(); ++at) {
      const Choice& choice = choices[at];
      if (auto fine = check_row(choice.row); !fine) return std::move(fine).error();
      if (!is_simple(choice) || choice.temperature <= 0) continue;
      if (sampled.size() == static_cast<std::size_t>(limits_.step_rows_max))
        return invalid("more tokens are to be chosen than a step has rows");
      samples[sampled.size()] = {.uniform = choice.uniform,
                                 .row = choice.row,
                                 .temperature = choice.temperature,
                                 .top_k = choice.top_k,
                                 .top_p = choice.top_p,
                                 .min_p = choice.min_p};
      sampled.push_back(at);
    }
    if (!sampled.empty()) {
      auto done = checked(cudaMemcpyAsync(scratch_->samples, samples, sampled.size() * sizeof(Sample),
                                          cudaMemcpyHostToDevice, stream_.get()),
                          "choosing tokens");
      if (!done) return std::move(done).error();
      sample(forward_->logits(), scratch_->samples, static_cast<std::int32_t>(sampled.size()), drawn(),
             queue());
    }
    if (auto done = finish(); !done) return std::move(done).error();
    for (std::size_t at = 0; at < sampled.size(); ++at) chosen[sampled[at]].token = drawn()[at];
    for (std::size_t at = 0; at < choices.size(); ++at) {
      const Choice& choice = choices[at];
      if (!is_simple(choice)) {
        const auto row = logits(choice.row);
        if (!row) return row.error();
        chosen[at] = chooser_.choose(*row, choice);
      } else if (choice.temperature <= 0) {
        chosen[at].token = largest()[choice.row];
      }
    }
    return chosen;
  }

  Result<std::vector<float>> logits(std::int32_t row) override {
    if (auto done = enter(); !done) return std::move(done).error();
    if (auto fine = check_row(row); !fine) return std::move(fine).error();
    const LogitRows rows = forward_->logits();
    std::vector<float> floats(static_cast<std::size_t>(rows.vocabulary));
    auto done = checked(cudaMemcpyAsync(floats.data(), rows.data + row * rows.stride,
                                        floats.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_.get()),
                        "reading logits");
    if (!done) return std::move(done).error();
    if (auto finished = finish(); !finished) return std::move(finished).error();
    return floats;
  }

  std::string describe() const override {
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(), "%s, %s weights %.1f GB, cache of %lld tokens %.1f GB%s%s",
                  device_name_.c_str(), options_.type == Type::bf16 ? "bf16" : "f32",
                  static_cast<double>(plan_.weights_bytes) / 1e9,
                  static_cast<long long>(plan_.blocks) * block_positions,
                  static_cast<double>(plan_.cache_bytes) / 1e9,
                  forward_->attends_fast() ? "" : ", plain attention",
                  options_.overlaps ? "" : ", kernels one after the other");
    return text.data();
  }

 private:
  Result<> choose_device() {
    const int count = devices();
    if (options_.device < 0 || options_.device >= count) {
      return failed(count == 0 ? "no GPU can be used here"
                               : "there is no GPU " + std::to_string(options_.device))
          .remedy("`nvidia-smi` shows what the driver knows; on a CPU the model runs too, slower");
    }
    if (auto done = checked(cudaSetDevice(options_.device), "choosing the device"); !done) return done;
    cudaDeviceProp properties{};
    auto done = checked(cudaGetDeviceProperties(&properties, options_.device), "asking for its name");
    if (!done) return done;
    constexpr int oldest_major = 8;
    if (properties.major < oldest_major)
      return failed(std::string(properties.name) + " is older than what is computed for: Ampere or later");
    device_name_ = properties.name;
    multiprocessors_ = properties.multiProcessorCount;
    options_.overlaps = options_.overlaps && properties.major >= 9;
    return {};
  }

  Result<> reserve() {
    std::size_t free_bytes = 0;
    std::size_t all_bytes = 0;
    if (auto done = checked(cudaMemGetInfo(&free_bytes, &all_bytes), "asking for its memory"); !done)
      return done;
    auto plan = plan_memory(shape_, options_, free_bytes, multiprocessors_);
    if (!plan) return std::move(plan).error();
    plan_ = *plan;
    limits_ = {.vocabulary = shape_.vocabulary,
               .context = plan_.context,
               .block_tokens = block_positions,
               .blocks = static_cast<std::int32_t>(plan_.blocks),
               .step_tokens_max = options_.step_tokens_max,
               .step_rows_max = options_.step_rows_max,
               .adapters = static_cast<std::int32_t>(options_.adapters.size())};
    sizes_ = {.type = options_.type,
              .tokens = options_.step_tokens_max,
              .rows = options_.step_rows_max,
              .context = plan_.context,
              .input_bytes = input_bytes_max(limits_),
              .multiprocessors = multiprocessors_,
              .fast_attention = options_.fast_attention,
              .adapter_rank = lora::largest_rank(options_.adapters)};
    buckets_ = bucket_sizes(options_.step_rows_max);
    const auto on_device = [](DeviceMemory& to, std::size_t bytes, const char* what) -> Result<> {
      auto memory = reserve_device(bytes, what);
      if (!memory) return std::move(memory).error();
      to = std::move(*memory);
      return {};
    };
    const auto on_host = [](PinnedMemory& to, std::size_t bytes, const char* what) -> Result<> {
      auto memory = reserve_pinned(bytes, what);
      if (!memory) return std::move(memory).error();
      to = std::move(*memory);
      return {};
    };
    const auto rows = static_cast<std::size_t>(options_.step_rows_max);
    if (auto done = on_device(weights_memory_, plan_.weights_bytes, "the weights"); !done) return done;
    if (plan_.adapters_bytes > 0) {
      if (auto done = on_device(adapters_memory_, plan_.adapters_bytes, "the adapters"); !done) return done;
    }
    if (auto done = on_device(scratch_memory_, plan_.scratch_bytes, "a step"); !done) return done;
    if (auto done = on_device(cache_memory_, plan_.cache_bytes, "the cache"); !done) return done;
    if (auto done = on_host(pinned_inputs_, sizes_.input_bytes, "a step"); !done) return done;
    if (auto done = on_host(pinned_samples_, rows * sizeof(Sample), "choices"); !done) return done;
    if (auto done = on_host(pinned_tokens_, 2 * padded_rows() * sizeof(std::int32_t), "tokens"); !done)
      return done;
    Arena arena(scratch_memory_.get());
    scratch_.emplace(shape_, sizes_, arena);
    auto stream = make_stream();
    if (!stream) return std::move(stream).error();
    stream_ = std::move(*stream);
    auto sent = make_event();
    if (!sent) return std::move(sent).error();
    sent_ = std::move(*sent);
    return checked(cudaDeviceSynchronize(), "reserving its memory");
  }

  Result<> load_adapters() {
    const AdapterLayout layout(shape_, options_.type, options_.adapters, Arena(adapters_memory_.get()));
    for (std::size_t layer = 0; layer < layout.tables_of_layers().size(); ++layer)
      weights_.layers[layer].adapters = layout.tables_of_layers()[layer];
    return cuda::load_adapters(layout, shape_, options_.type, options_.adapters);
  }

  // The device belongs to a thread, and steps may come from another one than the first.
  Result<> enter() const { return checked(cudaSetDevice(options_.device), "choosing the device"); }

  // Every kind of step once, with tokens of nobody: what the driver loads when it is first asked is loaded,
  // and steps of one token a sequence are recorded.
  Result<> warm_up() {
    if (options_.tunes) {
      for (const std::int32_t rows : buckets_) {
        if (rows > few_rows_max || options_.type == Type::f32) {
          if (auto done = forward_->tune(rows, queue()); !done) return done;
        }
      }
      for (const std::int32_t tokens : tuned_prompt_tokens) {
        if (tokens > options_.step_tokens_max) continue;
        if (auto done = forward_->tune(tokens, queue()); !done) return done;
      }
    }
    // A driver that cannot record kernels that overlap, with products or at all, can record them one after
    // the other.
    auto recorded = run_buckets();
    if (!recorded && options_.overlaps) {
      forward_->keep_from_products();
      recorded = run_buckets();
    }
    if (!recorded && options_.overlaps) {
      options_.overlaps = false;
      recorded = run_buckets();
    }
    if (!recorded) return recorded;
    return finish();
  }

  Result<> run_buckets() {
    graphs_.clear();
    for (const std::int32_t rows : buckets_) {
      const StepCounts counts{.tokens = rows, .alone = rows, .rows = rows, .is_plain = true};
      if (auto done = send({}, counts); !done) return done;
      forward_->run(view_of(counts), queue());
      if (auto done = launched(); !done) return done;
      if (!options_.graphs) continue;
      if (auto done = record(counts); !done) return done;
    }
    return {};
  }

  Result<> record(const StepCounts& counts) {
    if (auto done = finish(); !done) return done;
    constexpr const char* doing = "recording a step";
    auto begun = checked(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), doing);
    if (!begun) return begun;
    forward_->run(view_of(counts), queue());
    cudaGraph_t graph = nullptr;
    auto ended = checked(cudaStreamEndCapture(stream_.get(), &graph), doing);
    const OwnRecording recording(graph);
    if (auto fine = launched(); !fine) return fine;
    if (!ended) return ended;
    cudaGraphExec_t recorded = nullptr;
    if (auto made = checked(cudaGraphInstantiate(&recorded, graph, 0), doing); !made) return made;
    graphs_.emplace(counts.rows, OwnGraph(recorded));
    return checked(cudaGraphUpload(recorded, stream_.get()), doing);
  }

  // The inputs of a step onto the device.
  Result<> send(std::span<const Chunk> chunks, const StepCounts& counts) {
    // The last step's are still on their way if nobody asked for its tokens.
    if (auto done = checked(cudaEventSynchronize(sent_.get()), "sending a step"); !done) return done;
    const std::size_t bytes = pack_step(chunks, counts, block_positions, forward_->tile_tokens(),
                                        {pinned_inputs_.get(), sizes_.input_bytes});
    auto copied = checked(
        cudaMemcpyAsync(scratch_->inputs, pinned_inputs_.get(), bytes, cudaMemcpyHostToDevice, stream_.get()),
        "sending a step");
    if (!copied) return copied;
    return checked(cudaEventRecord(sent_.get(), stream_.get()), "sending a step");
  }

  StepView view_of(const StepCounts& counts) const {
    const InputLayout layout(counts.tokens, counts.rows, counts.tiles);
    const auto numbers = [&](std::size_t part) {
      return reinterpret_cast<const std::int32_t*>(scratch_->inputs + part);
    };
    return {.tokens = {.count = counts.tokens,
                       .token = numbers(layout.tokens()),
                       .position = numbers(layout.positions()),
                       .table_at = numbers(layout.table_places()),
                       .tables = numbers(layout.tables()),
                       .adapter = numbers(layout.adapters())},
            .alone = counts.alone,
            .tiles = reinterpret_cast<const Tile*>(scratch_->inputs + layout.tiles()),
            .tile_count = counts.tiles,
            .rows = counts.is_plain ? nullptr : numbers(layout.rows()),
            .row_count = counts.rows,
            .largest = largest()};
  }

  Queue queue() const { return {stream_.get(), options_.overlaps}; }

  // Whether all launches of a step were taken.
  Result<> launched() {
    auto fine = checked(cudaGetLastError(), "computing a step");
    auto products = products_->take_problem();
    return !fine ? std::move(fine) : std::move(products);
  }

  Result<> finish() { return checked(cudaStreamSynchronize(stream_.get()), "computing a step"); }

  Result<> check_row(std::int32_t row) const {
    if (row < 0 || row >= rows_) return invalid("the last step has no row " + std::to_string(row));
    return {};
  }

  std::size_t padded_rows() const { return static_cast<std::size_t>(padded(options_.step_rows_max)); }
  // Written by the device.
  std::int32_t* largest() const { return reinterpret_cast<std::int32_t*>(pinned_tokens_.get()); }
  std::int32_t* drawn() const { return largest() + padded_rows(); }

  model::Shape shape_;
  Options options_;
  std::string device_name_;
  int multiprocessors_ = 0;
  MemoryPlan plan_;
  Limits limits_;
  StepSizes sizes_;
  std::vector<std::int32_t> buckets_;
  DeviceMemory weights_memory_;
  DeviceMemory adapters_memory_;
  DeviceMemory scratch_memory_;
  DeviceMemory cache_memory_;
  PinnedMemory pinned_inputs_;
  PinnedMemory pinned_samples_;
  PinnedMemory pinned_tokens_;
  OwnStream stream_;
  OwnEvent sent_;
  Weights weights_;
  std::optional<Scratch> scratch_;
  std::unique_ptr<Products> products_;
  std::optional<Forward> forward_;
  std::map<std::int32_t, OwnGraph> graphs_;
  Chooser chooser_;
  std::int32_t rows_ = 0;  // of the last step
};

}  // namespace

int devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

Result<std::unique_ptr<Model>> make_model(const model::Shape& shape, const Options& options,
                                          const ReadRows& read) {
  if (auto fine = model::check(shape); !fine) return std::move(fine).error();
  auto made = std::make_unique<CudaModel>(shape, options);
  if (auto loaded = made->load(read); !loaded) return std::move(loaded).error();
  return std::unique_ptr<Model>(std::move(made));
}

}  // namespace tutti::serve::cuda
