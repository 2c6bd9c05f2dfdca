// bench/engine: how fast a model answers on this machine's CPUs, beside llama.cpp's own tools and, in f32,
// plain PyTorch. Random weights of the same shape and the same width on all sides, the same threads, in
// turns, and answers behind prompts of the same length.
#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include <nlohmann/json.hpp>

#include "common/llama_cpp.hpp"
#include "common/measure.hpp"
#include "common/options.hpp"
#include "common/report.hpp"
#include "serve/cpu/model.hpp"
#include "support/process.hpp"

namespace tutti::bench {
namespace {

namespace cpu = serve::cpu;

constexpr int streams_of_test = 16;
constexpr int prompt_tokens = 128;

struct Bench {
  Options options;
  Report report{"llama.cpp"};
  support::TempFolder folder;
  int turns = 3;
  int generated = 48;
};

model::Shape llama_shape(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t intermediate, std::int64_t vocabulary) {
  return {.model_type = "llama",
          .vocabulary = vocabulary,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_size = hidden / heads,
          .intermediate = intermediate,
          .context = 2048,
          .norm = model::Norm::rms,
          .activation = model::Activation::silu,
          .gated = true,
          .tied = false};
}

Result<> random_rows(const std::string& tensor, std::int64_t first_row, std::int64_t,
                     std::span<float> floats) {
  std::uint64_t state = std::hash<std::string>()(tensor) ^ static_cast<std::uint64_t>(first_row + 1);
  for (float& value : floats) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = 0.04F * (static_cast<float>(state >> 40U) * 0x1p-24F - 0.5F);
  }
  return {};
}

// Some sequences that begin with the same number of tokens and go on together.
class Streams {
 public:
  Streams(serve::Model& model, int count) : model_(model), count_(count) {
    const int blocks = (prompt_tokens + 512) / model.limits().block_tokens;
    for (int stream = 0; stream < count; ++stream) {
      blocks_.emplace_back();
      for (int block = 0; block < blocks; ++block) blocks_.back().push_back(stream * blocks + block);
      tokens_.push_back(stream);
    }
  }

  // The seconds that all prompts took.
  Result<double> begin() {
    const auto start = Clock::now();
    for (int stream = 0; stream < count_; ++stream) {
      std::vector<serve::Token> prompt;
      for (int at = 0; at < prompt_tokens; ++at) prompt.push_back((at * 7 + stream) % 1000);
      const serve::Chunk chunk{.tokens = prompt, .blocks = blocks_[index(stream)], .rows = 1};
      if (auto done = model_.step({&chunk, 1}); !done) return std::move(done).error();
    }
    position_ = prompt_tokens;
    return seconds_since(start);
  }

  // The seconds of so many tokens of each stream, one after the other.
  Result<double> go_on(int tokens) {
    const auto start = Clock::now();
    std::vector<serve::Choice> choices(index(count_));
    for (int stream = 0; stream < count_; ++stream) choices[index(stream)].row = stream;
    for (int token = 0; token < tokens; ++token, ++position_) {
      std::vector<serve::Chunk> chunks;
      for (int stream = 0; stream < count_; ++stream) {
        chunks.push_back({.tokens = {&tokens_[index(stream)], 1},
                          .first = position_,
                          .blocks = blocks_[index(stream)],
                          .rows = 1});
      }
      if (auto done = model_.step(chunks); !done) return std::move(done).error();
      auto chosen = model_.choose(choices);
      if (!chosen) return std::move(chosen).error();
      for (int stream = 0; stream < count_; ++stream) tokens_[index(stream)] = (*chosen)[index(stream)].token;
    }
    return seconds_since(start);
  }

 private:
  static std::size_t index(int at) { return static_cast<std::size_t>(at); }

  serve::Model& model_;
  int count_;
  std::vector<std::vector<serve::BlockId>> blocks_;
  std::vector<serve::Token> tokens_;
  std::int64_t position_ = 0;
};

// Tokens a second of what is done again and again, as long as a peer's tool would do it, after once to warm
// up.
Result<double> speed_of(int tokens, const std::function<Result<double>()>& seconds_of_one) {
  constexpr double seconds_min = 1;
  if (auto warm = seconds_of_one(); !warm) return std::move(warm).error();
  double seconds = 0;
  int times = 0;
  for (; seconds < seconds_min; ++times) {
    auto one = seconds_of_one();
    if (!one) return std::move(one).error();
    seconds += *one;
  }
  return times * tokens / seconds;
}

Result<double> tutti_prefill(serve::Model& model) {
  return speed_of(prompt_tokens, [&] { return Streams(model, 1).begin(); });
}

Result<double> tutti_streams(serve::Model& model, int count, int generated) {
  return speed_of(count * generated, [&]() -> Result<double> {
    Streams streams(model, count);
    if (auto done = streams.begin(); !done) return std::move(done).error();
    return streams.go_on(generated);
  });
}

int threads_here() { return static_cast<int>(std::thread::hardware_concurrency()); }

constexpr const char* python = "/usr/bin/python3";
constexpr const char* torch_program = TUTTI_SOURCE_DIR "/bench/peers/torch_llama.py";

bool has_torch() { return run_command({python, "-c", "import torch"}, {}).ok(); }

Result<double> torch_streams(const model::Shape& shape, int count, int generated) {
  const nlohmann::json options{{"hidden", shape.hidden},
                               {"layers", shape.layers},
                               {"heads", shape.heads},
                               {"kv_heads", shape.kv_heads},
                               {"intermediate", shape.intermediate},
                               {"vocabulary", shape.vocabulary},
                               {"prompt", prompt_tokens},
                               {"generated", generated},
                               {"streams", count},
                               {"threads", threads_here()}};
  auto printed = run_command({python, torch_program, options.dump()}, {}, std::chrono::minutes(10));
  if (!printed) return std::move(printed).error();
  const auto said = nlohmann::json::parse(*printed, nullptr, false);
  if (!said.is_object() || !said.contains("tokens_per_s"))
    return failed("torch_llama.py said nothing of its speed");
  return said["tokens_per_s"].get<double>();
}

struct Compared {
  const char* name;
  const char* what;
  model::Shape shape;
  cpu::WeightType weights;
  LlamaType peer;
  double one_bar;
  double streams_bar;
  double prefill_bar;  // 0: not asked for
};

Result<> compare(Bench& bench, const Compared& compared) {
  auto model = cpu::make_model(compared.shape, {.weights = compared.weights}, random_rows);
  if (!model) return std::move(model).error();
  std::printf("%s: %s\n", compared.what, (*model)->describe().c_str());
  const LlamaLoad load{.tools = bench.options.llama,
                       .model = bench.folder.path() + "/" + compared.name + ".gguf",
                       .threads = threads_here(),
                       .prompt = prompt_tokens,
                       .generated = bench.generated,
                       .streams = streams_of_test};
  if (auto written = write_gguf(load.model, compared.shape, compared.peer); !written) return written;
  auto values = measure_in_turns(
      {[&] { return tutti_prefill(**model); }, [&] { return llama_prefill(load); },
       [&] { return tutti_streams(**model, 1, bench.generated); }, [&] { return llama_one_stream(load); },
       [&] { return tutti_streams(**model, streams_of_test, bench.generated); },
       [&] { return llama_streams(load); }},
      bench.turns);
  std::filesystem::remove(load.model);
  if (!values) return std::move(values).error();
  const auto add = [&](const char* part, const char* what, std::size_t at, double bar) {
    bench.report.add({.name = std::string(compared.name) + "_" + part,
                      .what = std::string(compared.what) + ", " + what,
                      .unit = "tokens/s",
                      .tutti = median(std::move((*values)[at])),
                      .peer = median(std::move((*values)[at + 1])),
                      .bar = bar > 0 ? std::optional(Bar{Bar::Kind::ratio_at_least, bar}) : std::nullopt});
  };
  add("prefill", "prompt of 128", 0, compared.prefill_bar);
  add("one", "1 stream", 2, compared.one_bar);
  add("sixteen", "16 streams", 4, compared.streams_bar);
  return {};
}

Result<> measure_large(Bench& bench) {
  return compare(bench, {"llama_1b_int8", "1.1 B int8", llama_shape(2048, 22, 32, 4, 5632, 32000),
                         cpu::WeightType::int8, LlamaType::q8_0, 1.1, 1.3, 1.5});
}

const model::Shape& small_shape() {
  static const model::Shape shape = llama_shape(384, 8, 6, 2, 1024, 8192);
  return shape;
}

Result<> measure_small_floats(Bench& bench) {
  return compare(bench,
                 {"small_f32", "19 M f32", small_shape(), cpu::WeightType::f32, LlamaType::f32, 1.0, 1.0, 0});
}

Result<> measure_small_torch(Bench& bench) {
  if (!has_torch())
    return failed("the peer is missing: no PyTorch").within(python).remedy("apt install python3-torch");
  auto model = cpu::make_model(small_shape(), {.weights = cpu::WeightType::f32}, random_rows);
  if (!model) return std::move(model).error();
  for (const int count : {1, streams_of_test}) {
    auto values = measure_in_turns({[&] { return tutti_streams(**model, count, bench.generated); },
                                    [&] { return torch_streams(small_shape(), count, bench.generated); }},
                                   bench.turns);
    if (!values) return std::move(values).error();
    bench.report.add({.name = "small_f32_torch_" + std::to_string(count),
                      .what = "19 M f32, " + std::to_string(count) + (count == 1 ? " stream" : " streams"),
                      .unit = "tokens/s",
                      .tutti = median(std::move((*values)[0])),
                      .peer = median(std::move((*values)[1])),
                      .peer_name = "PyTorch",
                      .bar = Bar{Bar::Kind::ratio_at_least, 1}});
  }
  return {};
}

Result<> measure_small_bytes(Bench& bench) {
  return compare(
      bench, {"small_int8", "19 M int8", small_shape(), cpu::WeightType::int8, LlamaType::q8_0, 1.0, 1.0, 0});
}

// Many streams at once beside the same one after the other.
Result<> measure_together(Bench& bench) {
  model::Shape shape = llama_shape(512, 6, 8, 8, 1536, 8192);
  shape.tied = true;
  auto model = cpu::make_model(shape, {.weights = cpu::WeightType::f32}, random_rows);
  if (!model) return std::move(model).error();
  auto values = measure_in_turns({[&] { return tutti_streams(**model, streams_of_test, bench.generated); },
                                  [&] { return tutti_streams(**model, 1, bench.generated); }},
                                 bench.turns);
  if (!values) return std::move(values).error();
  bench.report.add({.name = "together_f32",
                    .what = "25 M f32, 16 streams",
                    .unit = "tokens/s",
                    .tutti = median(std::move((*values)[0])),
                    .peer = median(std::move((*values)[1])),
                    .peer_name = "one at a time",
                    .bar = Bar{Bar::Kind::ratio_at_least, 3}});
  return {};
}

struct Part {
  const char* name;
  Result<> (*measure)(Bench&);
  bool has_peer;
};
constexpr std::array parts{Part{"together", measure_together, false},
                           Part{"small-torch", measure_small_torch, false},
                           Part{"small-f32", measure_small_floats, true},
                           Part{"small-int8", measure_small_bytes, true}, Part{"large", measure_large, true}};

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  Bench bench{.options = *options};
  if (options->quick) bench.turns = 1, bench.generated = 16;
  for (const Part& part : parts) {
    if (!part.has_peer || !options->wants(part.name)) continue;
    if (auto found = find_llama_tools(options->llama); !found) return found;
  }
  catch_interrupts();
  std::printf("%d cores, medians in turns, random weights\n", threads_here());
  bench.report.print_head();
  for (const Part& part : parts) {
    if (!options->wants(part.name)) continue;
    if (auto done = part.measure(bench); !done) return std::move(done).error().within(part.name);
  }
  return bench.report.end(*options);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  return tutti::bench::exit_code("bench_engine", tutti::bench::run({words + 1, words + count}));
}
