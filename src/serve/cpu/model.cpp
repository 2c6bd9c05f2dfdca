#include "serve/cpu/model.hpp"

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "serve/batch/choose.hpp"
#include "serve/cpu/cache.hpp"
#include "serve/cpu/forward.hpp"
#include "serve/cpu/instructions.hpp"
#include "serve/cpu/memory.hpp"
#include "serve/cpu/team.hpp"
#include "serve/model/arena.hpp"
#include "serve/model/check.hpp"

namespace tutti::serve::cpu {
namespace {

// What is taken from the system in one go.
constexpr std::size_t touch_bytes = std::size_t{16} << 20;

// Threads that ranks of one machine have each, when nobody says how many.
int threads_of(const Options& options) {
  const int ranks = part_of(options).count;
  if (options.threads > 0 || ranks == 1) return options.threads;
  return std::max(1, usable_cores() / ranks);
}

class CpuModel final : public Model {
 public:
  CpuModel(const model::Shape& shape, const Options& options)
      : whole_(shape),
        shape_(shape_of_part(shape, part_of(options))),
        options_(options),
        team_(threads_of(options)),
        choosers_(static_cast<std::size_t>(team_.size())) {
    for (lora::Adapter& adapter : options_.adapters) adapter = adapter.of_part(whole_, part_of(options_));
  }

  Result<> load(const ReadRows& read) {
    auto planned = plan();
    if (!planned) return planned;
    const Part part = part_of(options_);
    auto weights = Weights::load(shape_, options_.weights, read_part(whole_, part, read), team_, part);
    if (!weights) return std::move(weights).error();
    weights_ = std::move(*weights);
    auto adapters = Adapters::load(shape_, options_.adapters);
    if (!adapters) return std::move(adapters).error();
    adapters_ = std::move(*adapters);
    if (auto done = reserve(cache_memory_, plan_.cache_bytes, "the cache"); !done) return done;
    if (auto done = reserve(scratch_memory_, plan_.scratch_bytes, "a step"); !done) return done;
    limits_ = {.vocabulary = shape_.vocabulary,
               .context = plan_.context,
               .block_tokens = static_cast<std::int32_t>(block_positions),
               .blocks = static_cast<std::int32_t>(plan_.blocks),
               .step_tokens_max = options_.step_tokens_max,
               .step_rows_max = options_.step_rows_max,
               .adapters = static_cast<std::int32_t>(options_.adapters.size())};
    Arena scratch(scratch_memory_.data());
    const StepSizes sizes{options_.step_tokens_max, options_.step_rows_max, plan_.context, team_.size(),
                          Adapters::width(options_.adapters)};
    forward_ =
        std::make_unique<Forward>(shape_, weights_, adapters_, chosen_kernels(),
                                  Cache(shape_, plan_.blocks, reinterpret_cast<float*>(cache_memory_.data())),
                                  sizes, scratch, options_.peers.get());
    toucher_ = std::jthread([this](const std::stop_token& stop) { touch_all(stop); });
    return {};
  }

  const Limits& limits() const override { return limits_; }

  Result<> step(std::span<const Chunk> chunks) override {
    tokens_.clear();
    rows_.clear();
    row_chunks_.clear();
    if (auto fine = check_step(chunks, limits_); !fine) return fine;
    put_tokens(chunks);
    if (!tokens_.empty()) team_.run([this](Member& member) { forward_->run(member, tokens_, rows_); });
    return forward_->problem();
  }

  Result<std::vector<Chosen>> choose(std::span<const Choice> choices) override {
    for (const Choice& choice : choices) {
      if (auto row = row_of(choice.row); !row) return std::move(row).error();
    }
    std::vector<Chosen> chosen(choices.size());
    team_.run([&](Member& member) {
      Chooser& chooser = choosers_[static_cast<std::size_t>(member.index())];
      member.share(static_cast<std::int64_t>(choices.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (auto at = static_cast<std::size_t>(begin); at < static_cast<std::size_t>(end); ++at) {
          chosen[at] = chooser.choose(forward_->logits(choices[at].row), choices[at]);
          add_hidden(choices[at], chosen[at]);
        }
      });
    });
    return chosen;
  }

  Result<std::vector<float>> logits(std::int32_t row) override {
    auto numbers = row_of(row);
    if (!numbers) return std::move(numbers).error();
    return std::vector<float>(numbers->begin(), numbers->end());
  }

  std::string describe() const override {
    return "cpu, " + std::string(chosen_kernels().name) + ", " + std::to_string(team_.size()) + " threads, " +
           std::string(name_of(options_.weights)) + " weights " + shown_bytes(plan_.weights_bytes) +
           ", cache of " + std::to_string(plan_.blocks * block_positions) + " tokens " +
           shown_bytes(plan_.cache_bytes);
  }

 private:
  const Kernels& chosen_kernels() const {
    return options_.kernels != nullptr ? *options_.kernels : kernels();
  }

  // Nobody reserves before all ranks have looked at what is free, and all have as many blocks as the one that
  // has the fewest.
  Result<> plan() {
    auto free_bytes = free_memory_bytes();
    if (!free_bytes) return std::move(free_bytes).error();
    if (options_.peers) {
      const auto least = options_.peers->least(static_cast<std::int64_t>(*free_bytes));
      if (!least) return least.error();
      free_bytes = static_cast<std::uint64_t>(*least);
    }
    auto planned = plan_memory(whole_, options_, team_.size(), *free_bytes);
    if (!planned) return std::move(planned).error();
    plan_ = *planned;
    if (!options_.peers) return {};
    const auto least = options_.peers->least(plan_.blocks);
    if (!least) return least.error();
    plan_.cache_bytes =
        plan_.cache_bytes / static_cast<std::uint64_t>(plan_.blocks) * static_cast<std::uint64_t>(*least);
    plan_.blocks = *least;
    return {};
  }

  static Result<> reserve(Memory& memory, std::uint64_t bytes, const char* what) {
    auto reserved = Memory::reserve(bytes, what);
    if (!reserved) return std::move(reserved).error();
    memory = std::move(*reserved);
    return {};
  }

  // Rows are in the order of their chunks, tokens in that of their adapters: whose adapter is the same is
  // computed together.
  void put_tokens(std::span<const Chunk> chunks) {
    order_.resize(chunks.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, {}, [&](std::size_t at) { return chunks[at].adapter; });
    end_of_.resize(chunks.size());
    for (const std::size_t at : order_) {
      const Chunk& chunk = chunks[at];
      std::int64_t position = chunk.first;
      for (const Token token : chunk.tokens)
        tokens_.push_back({token, position++, chunk.blocks.data(), chunk.adapter});
      end_of_[at] = static_cast<std::int64_t>(tokens_.size());
    }
    for (std::size_t at = 0; at < chunks.size(); ++at) {
      const auto count = static_cast<std::int64_t>(chunks[at].tokens.size());
      for (std::int64_t token = end_of_[at] - chunks[at].rows; token < end_of_[at]; ++token) {
        rows_.push_back(token);
        row_chunks_.emplace_back(end_of_[at] - count, count);
      }
    }
  }

  // All of it is taken from the system at once, because later there may be no more; beside the first steps,
  // because that may take seconds.
  void touch_all(const std::stop_token& stop) const {
    for (const Memory* memory : {&scratch_memory_, &cache_memory_}) {
      for (std::size_t at = 0; at < memory->bytes() && !stop.stop_requested(); at += touch_bytes)
        memory->touch(at, std::min(touch_bytes, memory->bytes() - at));
    }
  }

  void add_hidden(const Choice& choice, Chosen& chosen) const {
    switch (choice.pooling) {
      case Pooling::none:
        return;
      case Pooling::last: {
        const auto hidden = forward_->hidden(choice.row);
        chosen.hidden.assign(hidden.begin(), hidden.end());
        return;
      }
      case Pooling::mean: {
        const auto& [first, count] = row_chunks_[static_cast<std::size_t>(choice.row)];
        chosen.hidden_sum = forward_->hidden_sum(first, count);
        return;
      }
    }
  }

  Result<std::span<const float>> row_of(std::int32_t row) const {
    if (row < 0 || static_cast<std::size_t>(row) >= rows_.size())
      return invalid("the last step has no row " + std::to_string(row));
    return forward_->logits(row);
  }

  model::Shape whole_;
  model::Shape shape_;  // of this rank's part
  Options options_;
  Team team_;
  MemoryPlan plan_;
  Weights weights_;
  Adapters adapters_;
  Memory cache_memory_;
  Memory scratch_memory_;
  Limits limits_;
  std::unique_ptr<Forward> forward_;
  std::vector<Chooser> choosers_;  // one a thread
  std::vector<StepToken> tokens_;  // of the last step
  std::vector<std::int64_t> rows_;
  std::vector<std::pair<std::int64_t, std::int64_t>>
      row_chunks_;                    // of each row: its chunk's first token, and how many
  std::vector<std::size_t> order_;    // of its chunks
  std::vector<std::int64_t> end_of_;  // behind the last token of each
  std::jthread toucher_;              // ends before the memory does
};

}  // namespace

Result<std::unique_ptr<Model>> make_model(const model::Shape& shape, const Options& options,
                                          const ReadRows& read) {
  if (auto fine = model::check(shape); !fine) return std::move(fine).error();
  if (auto fine = check_split(shape, part_of(options).count); !fine) return std::move(fine).error();
  auto made = std::make_unique<CpuModel>(shape, options);
  if (auto loaded = made->load(read); !loaded) return std::move(loaded).error();
  return std::unique_ptr<Model>(std::move(made));
}

}  // namespace tutti::serve::cpu
