#include "serve/cuda/model.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <iterator>
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

class CudaModel final : public Model {
 public:
  CudaModel(const model::Shape& shape, const Options& options)
      : whole_(shape), shape_(shape_of_part(shape, part_of(options))), options_(options) {
    // What comm puts on a queue is not recorded.
    if (options_.peers) options_.graphs = false;
    for (lora::Adapter& adapter : options_.adapters) adapter = adapter.of_part(whole_, part_of(options_));
  }

  ~CudaModel() override {
    // Nothing is given back that is still in use.
    if (stream_) static_cast<void>(cudaStreamSynchronize(stream_.get()));
  }

  Result<> load(const ReadRows& read, const ReadStored& stored) {
    if (auto done = choose_device(); !done) return done;
    if (auto done = reserve(); !done) return done;
    const Part part = part_of(options_);
    const WeightLayout layout(shape_, options_.type, Arena(weights_memory_.get()), part, options_.is_fp8);
    weights_ = layout.weights();
    const PieceReader reader{read_part(whole_, part, read), read_stored_part(whole_, part, stored)};
    if (auto done = load_pieces(layout.pieces(), reader, options_.device); !done) return done;
    if (auto done = load_lists(shape_, weights_); !done) return done;
    if (auto done = load_adapters(); !done) return done;
    auto products = Products::make(scratch_->workspace);
    if (!products) return std::move(products).error();
    products_ = std::move(*products);
    forward_.emplace(shape_, weights_, *scratch_, *products_, cache_memory_.get(), plan_.blocks + 1, sizes_,
                     options_.peers.get());
    // The steps of warming up are taken by all ranks together.
    if (auto all_are_here = least(0); !all_are_here) return std::move(all_are_here).error();
    return warm_up();
  }

  const Limits& limits() const override { return limits_; }

  Result<> step(std::span<const Chunk> chunks) override {
    rows_ = 0;
    if (auto done = enter(); !done) return done;
    if (auto fine = check_step(chunks, limits_); !fine) return fine;
    for (const Chunk& chunk : chunks) {
      if (chunk.follows >= static_cast<std::int32_t>(places_.size()))
        return invalid("a chunk follows a choice that was not asked for");
    }
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
    row_places_ = row_places(chunks);
    return {};
  }

  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    if (auto asked = ask(choices); !asked) return std::move(asked).error();
    return answer();
  }

  bool works_ahead() const override { return true; }

  // Chosen where the logits are, and copied to a place that the next step does not write to. What the
  // reference alone does is done at once.
  Result<> ask(std::span<const Choice> choices) override {
    if (auto done = enter(); !done) return done;
    if (asked_.size() == slots) return invalid("two steps are under way already");
    Asked asked{.slot = asks_++ % slots, .places = {}, .known = std::nullopt};
    Sample* const samples = reinterpret_cast<Sample*>(pinned_samples_.get()) + asked.slot * rows_max();
    std::int32_t sampled = 0;
    bool all_plain = true;
    for (const Choice& choice : choices) {
      if (auto fine = check_row(choice.row); !fine) return fine;
      all_plain = all_plain && is_plain(choice);
      if (!is_plain(choice) || choice.temperature <= 0) {
        asked.places.push_back(choice.row);
        continue;
      }
      if (sampled == options_.step_rows_max)
        return invalid("more tokens are to be chosen than a step has rows");
      samples[sampled] = {.uniform = choice.uniform,
                          .row = choice.row,
                          .temperature = choice.temperature,
                          .top_k = choice.top_k,
                          .top_p = choice.top_p,
                          .min_p = choice.min_p};
      asked.places.push_back(static_cast<std::int32_t>(padded_rows()) + sampled++);
    }
    if (sampled > 0) {
      auto done = checked(
          cudaMemcpyAsync(scratch_->samples, samples, static_cast<std::size_t>(sampled) * sizeof(Sample),
                          cudaMemcpyHostToDevice, stream_.get()),
          "choosing tokens");
      if (!done) return done;
      sample(forward_->logits(), scratch_->samples, sampled, scratch_->chosen + padded_rows(), queue());
    }
    const std::size_t count =
        sampled > 0 ? padded_rows() + static_cast<std::size_t>(sampled) : static_cast<std::size_t>(rows_);
    auto copied =
        checked(cudaMemcpyAsync(tokens_of(asked.slot), scratch_->chosen, count * sizeof(std::int32_t),
                                cudaMemcpyDeviceToHost, stream_.get()),
                "choosing tokens");
    if (!copied) return copied;
    if (auto done = checked(cudaEventRecord(done_[asked.slot].get(), stream_.get()), "choosing tokens");
        !done)
      return done;
    places_ = asked.places;
    if (!all_plain) {
      auto chosen = choose_here(choices, asked);
      if (!chosen) return std::move(chosen).error();
      asked.known = std::move(*chosen);
    }
    asked_.push_back(std::move(asked));
    return {};
  }

  bool has_answer() override {
    return asked_.empty() || asked_.front().known ||
           cudaEventQuery(done_[asked_.front().slot].get()) != cudaErrorNotReady;
  }

  Result<std::vector<Chosen>> answer() override {
    if (asked_.empty()) return invalid("nothing was asked");
    Asked asked = std::move(asked_.front());
    asked_.pop_front();
    if (asked.known) return std::move(*asked.known);
    return tokens_known(asked);
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
                  device_name_.c_str(),
                  options_.is_fp8               ? "fp8"
                  : options_.type == Type::bf16 ? "bf16"
                                                : "f32",
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
    if (options_.peers && count > 0) options_.device = device_of_rank(part_of(options_), count);
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
    if (auto done = plan(free_bytes); !done) return done;
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
              .part = part_of(options_),
              .adapter_rank = lora::largest_rank(options_.adapters),
              .is_fp8 = options_.is_fp8};
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
    if (auto done = on_device(weights_memory_, plan_.weights_bytes, "the weights"); !done) return done;
    if (plan_.adapters_bytes > 0) {
      if (auto done = on_device(adapters_memory_, plan_.adapters_bytes, "the adapters"); !done) return done;
    }
    if (auto done = on_device(scratch_memory_, plan_.scratch_bytes, "a step"); !done) return done;
    if (auto done = on_device(cache_memory_, plan_.cache_bytes, "the cache"); !done) return done;
    if (auto done = on_host(pinned_inputs_, sizes_.input_bytes, "a step"); !done) return done;
    if (auto done = on_host(pinned_samples_, slots * rows_max() * sizeof(Sample), "choices"); !done)
      return done;
    if (auto done = on_host(pinned_tokens_, slots * 2 * padded_rows() * sizeof(std::int32_t), "tokens");
        !done)
      return done;
    Arena arena(scratch_memory_.get());
    scratch_.emplace(shape_, sizes_, arena);
    auto stream = make_stream();
    if (!stream) return std::move(stream).error();
    stream_ = std::move(*stream);
    if (options_.peers) options_.peers->use_queue(stream_.get());
    auto sent = make_event();
    if (!sent) return std::move(sent).error();
    sent_ = std::move(*sent);
    for (OwnEvent& event : done_) {
      auto done = make_event();
      if (!done) return std::move(done).error();
      event = std::move(*done);
    }
    return checked(cudaDeviceSynchronize(), "reserving its memory");
  }

  // Nobody reserves before all ranks have looked at what is free, and all have as many blocks as the one that
  // has the fewest.
  Result<> plan(std::uint64_t free_bytes) {
    const auto shared_by = static_cast<std::uint64_t>(ranks_on_device_of(part_of(options_), devices()));
    const auto free_of_all = least(static_cast<std::int64_t>(free_bytes / shared_by));
    if (!free_of_all) return free_of_all.error();
    auto planned = plan_memory(whole_, options_, static_cast<std::uint64_t>(*free_of_all), multiprocessors_);
    if (!planned) return std::move(planned).error();
    plan_ = *planned;
    const auto blocks = least(plan_.blocks);
    if (!blocks) return blocks.error();
    plan_.cache_bytes = plan_.cache_bytes / static_cast<std::uint64_t>(plan_.blocks + 1) *
                        static_cast<std::uint64_t>(*blocks + 1);
    plan_.blocks = *blocks;
    return {};
  }

  Result<std::int64_t> least(std::int64_t number) const {
    return options_.peers ? options_.peers->least(number) : Result<std::int64_t>(number);
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
                                        {pinned_inputs_.get(), sizes_.input_bytes}, places_);
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
            .largest = scratch_->chosen};
  }

  Queue queue() const { return {stream_.get(), options_.overlaps}; }

  struct Asked {
    std::size_t slot = 0;
    std::vector<std::int32_t> places;  // where the token of each choice is
    std::optional<std::vector<Chosen>> known;
  };

  Result<std::vector<Chosen>> tokens_known(const Asked& asked) {
    auto done = checked(cudaEventSynchronize(done_[asked.slot].get()), "computing a step");
    if (!done) return std::move(done).error();
    std::vector<Chosen> chosen(asked.places.size());
    for (std::size_t at = 0; at < chosen.size(); ++at)
      chosen[at].token = tokens_of(asked.slot)[asked.places[at]];
    return chosen;
  }

  // What only the host does, or reads.
  Result<std::vector<Chosen>> choose_here(std::span<const Choice> choices, const Asked& asked) {
    std::vector<double> known;
    if (auto done = ask_for_known(choices, known); !done) return std::move(done).error();
    if (auto done = finish(); !done) return std::move(done).error();
    auto chosen = tokens_known(asked);
    if (!chosen) return chosen;
    take_known(choices, known, *chosen);
    for (std::size_t at = 0; at < choices.size(); ++at) {
      const Choice& choice = choices[at];
      if (is_plain(choice)) continue;
      Chosen& own = (*chosen)[at];
      if (choice.given != no_token && choice.logprobs < 0) {
        own.token = choice.given;
        continue;
      }
      const auto row = logits(choice.row);
      if (!row) return row.error();
      const Chosen picked = chooser_.choose(*row, choice);
      own.token = picked.token;
      own.logprob = picked.logprob;
      own.likeliest = picked.likeliest;
    }
    return chosen;
  }

  // Whether all launches of a step were taken.
  Result<> launched() {
    auto fine = checked(cudaGetLastError(), "computing a step");
    auto products = products_->take_problem();
    if (fine && products) return forward_->problem();
    return !fine ? std::move(fine) : std::move(products);
  }

  Result<> finish() {
    auto done = checked(cudaStreamSynchronize(stream_.get()), "computing a step");
    return done && options_.peers ? options_.peers->check() : std::move(done);
  }

  std::size_t known_stride() const { return static_cast<std::size_t>(Sizes(shape_).hidden); }

  // What the model knows, of all choices that want it: under way when this returns.
  Result<> ask_for_known(std::span<const Choice> choices, std::vector<double>& known) {
    std::int64_t count = 0;
    for (const Choice& choice : choices) {
      if (choice.pooling == Pooling::none) continue;
      if (count == limits_.step_rows_max) return invalid("more vectors are wanted than a step has rows");
      const RowPlace& place = row_places_[static_cast<std::size_t>(choice.row)];
      const bool is_sum = choice.pooling == Pooling::mean;
      forward_->sum_known(count++, is_sum ? place.chunk_first : place.token, is_sum ? place.chunk_tokens : 1,
                          {stream_.get(), false});
    }
    if (count == 0) return {};
    if (auto done = launched(); !done) return done;
    known.resize(static_cast<std::size_t>(count) * known_stride());
    return checked(cudaMemcpyAsync(known.data(), scratch_->known_sums, known.size() * sizeof(double),
                                   cudaMemcpyDeviceToHost, stream_.get()),
                   "reading what the model knows");
  }

  void take_known(std::span<const Choice> choices, const std::vector<double>& known,
                  std::vector<Chosen>& chosen) const {
    auto row = known.begin();
    for (std::size_t at = 0; at < choices.size(); ++at) {
      if (choices[at].pooling == Pooling::none) continue;
      const auto end = row + static_cast<std::ptrdiff_t>(shape_.hidden);
      if (choices[at].pooling == Pooling::mean) {
        chosen[at].hidden_sum.assign(row, end);
      } else {
        std::transform(row, end, std::back_inserter(chosen[at].hidden),
                       [](double number) { return static_cast<float>(number); });
      }
      row += static_cast<std::ptrdiff_t>(known_stride());
    }
  }

  Result<> check_row(std::int32_t row) const {
    if (row < 0 || row >= rows_) return invalid("the last step has no row " + std::to_string(row));
    return {};
  }

  std::size_t rows_max() const { return static_cast<std::size_t>(options_.step_rows_max); }
  std::size_t padded_rows() const { return static_cast<std::size_t>(product_tokens(options_.step_rows_max)); }
  // Copied there from the device.
  std::int32_t* tokens_of(std::size_t slot) const {
    return reinterpret_cast<std::int32_t*>(pinned_tokens_.get()) + slot * 2 * padded_rows();
  }

  model::Shape whole_;
  model::Shape shape_;  // of this rank's part
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
  static constexpr std::size_t slots = 2;
  std::array<OwnEvent, slots> done_;
  std::size_t asks_ = 0;
  std::deque<Asked> asked_;           // and not answered
  std::vector<std::int32_t> places_;  // of the last question
  std::vector<RowPlace> row_places_;  // of the last step
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
                                          const ReadRows& read, const ReadStored& stored) {
  if (auto fine = model::check(shape); !fine) return std::move(fine).error();
  if (auto fine = check_split(shape, part_of(options).count); !fine) return std::move(fine).error();
  auto made = std::make_unique<CudaModel>(shape, options);
  if (auto loaded = made->load(read, stored); !loaded) return std::move(loaded).error();
  return std::unique_ptr<Model>(std::move(made));
}

}  // namespace tutti::serve::cuda
