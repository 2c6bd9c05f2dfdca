// How fast a GPU answers: a Llama shape of 1.1 billion random weights.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "base/clock/clock.hpp"
#include "learn/model/llama_1b_test.hpp"
#include "serve/check/check.hpp"
#include "serve/check/line.hpp"
#include "serve/cuda/model.hpp"
#include "serve/engine/engine.hpp"

namespace tutti::serve {
namespace {

using Clock = SteadyClock;
using Seconds = std::chrono::duration<double>;

constexpr int prompt_tokens = 128;
constexpr std::int64_t context_tokens = 8192;
constexpr double peak_operations = 989e12;  // of an H100 or H200, dense, bf16

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Since this process was started, its libraries included.
double process_seconds() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream words(text.substr(text.rfind(')') + 1));
  std::string word;
  constexpr int start_field = 20;  // behind the name
  for (int at = 0; at < start_field; ++at) words >> word;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         std::strtod(word.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
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

std::vector<Token> made_prompt(int count, int which) {
  std::vector<Token> prompt;
  prompt.reserve(static_cast<std::size_t>(count));
  for (int at = 0; at < count; ++at) prompt.push_back((at * 7919 + which * 104729) % 32000);
  return prompt;
}

// The steps themselves, without an engine around them: milliseconds of one.
Result<double> step_milliseconds(Model& model, int rows, int context, int steps) {
  const std::int32_t blocks_each = (context + steps + 15) / 16 + 1;
  std::vector<std::vector<BlockId>> blocks(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < blocks.size(); ++row) {
    for (std::int32_t at = 0; at < blocks_each; ++at)
      blocks[row].push_back((static_cast<std::int32_t>(row) * blocks_each + at) % model.limits().blocks);
  }
  std::vector<Token> tokens(blocks.size(), 17);
  std::vector<Choice> choices(blocks.size());
  for (std::size_t row = 0; row < choices.size(); ++row) choices[row].row = static_cast<std::int32_t>(row);
  std::vector<double> times;
  for (int at = 0; at < steps; ++at) {
    const auto start = Clock::now();
    std::vector<Chunk> chunks;
    for (std::size_t row = 0; row < blocks.size(); ++row)
      chunks.push_back(
          {.tokens = {&tokens[row], 1}, .first = context + at, .blocks = blocks[row], .rows = 1});
    if (auto done = model.step(chunks); !done) return std::move(done).error();
    auto chosen = model.choose(choices);
    if (!chosen) return std::move(chosen).error();
    for (std::size_t row = 0; row < blocks.size(); ++row) tokens[row] = (*chosen)[row].token;
    times.push_back(seconds_since(start) * 1e3);
  }
  return median(std::move(times));
}

Result<> bench_steps(Model& model, const Print& print) {
  for (const int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    for (const int context : {256, 2048}) {
      if (context > 256 && rows != 1 && rows != 64) continue;
      auto time = step_milliseconds(model, rows, context, 60);
      if (!time) return std::move(time).error();
      print(line("step of %3d rows, context %4d: %.3f ms, %.0f tokens/s", rows, context, *time,
                 rows / *time * 1e3));
    }
  }
  return {};
}

Result<> bench_prompt(Model& model, int tokens, const Print& print) {
  std::vector<BlockId> blocks;
  for (BlockId at = 0; at * 16 < tokens; ++at) blocks.push_back(at);
  std::vector<double> times;
  for (int turn = 0; turn < 8; ++turn) {
    const auto prompt = made_prompt(tokens, turn);
    const auto start = Clock::now();
    for (int done = 0; done < tokens; done += model.limits().step_tokens_max) {
      const int count = std::min(model.limits().step_tokens_max, tokens - done);
      const bool is_last = done + count == tokens;
      const Chunk chunk{.tokens = std::span(prompt).subspan(static_cast<std::size_t>(done),
                                                            static_cast<std::size_t>(count)),
                        .first = done,
                        .blocks = blocks,
                        .rows = is_last ? 1 : 0};
      if (auto computed = model.step({&chunk, 1}); !computed) return computed;
    }
    const Choice choice;
    if (auto chosen = model.choose({&choice, 1}); !chosen) return std::move(chosen).error();
    times.push_back(seconds_since(start));
  }
  const double time = median(std::move(times));
  const model::Shape shape = model::llama_1b(context_tokens);
  // The head is computed for the last token alone, the embedding only looked up; attention sees half of the
  // prompt.
  const double matrices = static_cast<double>(model::parameters(shape) - 2 * shape.vocabulary * shape.hidden);
  const double attention = 2.0 * static_cast<double>(shape.layers * shape.heads * shape.head_size) * tokens;
  const double operations = tokens * (2 * matrices + attention);
  print(line("prompt of %d in steps of %d: %.2f ms, %.0f tokens/s, %.0f TFLOP/s, %.1f%% of the peak", tokens,
             model.limits().step_tokens_max, time * 1e3, tokens / time, operations / time * 1e-12,
             operations / time / peak_operations * 100));
  return {};
}

// What comes of the engine while all requests are answered at once.
struct Together {
  std::mutex mutex;
  std::condition_variable all_ended;
  int begun = 0;
  int ended = 0;
  std::int64_t tokens = 0;  // between the first token of the last and the end of the first
  Clock::time_point from;
  Clock::time_point until;
  std::vector<double> gaps_ms;  // of the first request
  Clock::time_point last;
};

Result<> bench_engine(Engine& engine, const char* name, int count, int answer_tokens, int turn,
                      const Print& print) {
  Together together;
  const auto start = Clock::now();
  double first_ms = 0;
  for (int at = 0; at < count; ++at) {
    Request request;
    request.prompt = made_prompt(prompt_tokens, at + turn * 1000);
    request.tokens_max = answer_tokens;
    bool begun = false;
    auto id = engine.submit(std::move(request), [&, at, begun](Piece&& piece) mutable {
      const auto now = Clock::now();
      const std::lock_guard lock(together.mutex);
      if (together.begun == count && together.ended == 0) {
        together.tokens += static_cast<std::int64_t>(piece.tokens.size());
        together.until = now;
      }
      if (!std::exchange(begun, true) && ++together.begun == count) together.from = together.until = now;
      if (piece.finish && ++together.ended == count) together.all_ended.notify_one();
      if (at != 0) return;
      if (first_ms == 0) {
        first_ms = Seconds(now - start).count() * 1e3;
      } else {
        together.gaps_ms.push_back(Seconds(now - together.last).count() * 1e3);
      }
      together.last = now;
    });
    if (!id) return std::move(id).error();
  }
  std::unique_lock lock(together.mutex);
  together.all_ended.wait(lock, [&] { return together.ended == count; });
  const double window = Seconds(together.until - together.from).count();
  print(
      line("%s, %3d requests of %d + %d tokens: %.0f tokens/s together, %.3f ms a token (median), first "
           "after %.1f ms",
           name, count, prompt_tokens, answer_tokens, static_cast<double>(together.tokens) / window,
           median(together.gaps_ms), first_ms));
  return {};
}

// `turns` times, so that the last is of a device that is warm.
Result<> bench_streams(std::unique_ptr<Model> model, const char* name, const std::vector<int>& counts,
                       int turns, const Print& print) {
  Engine engine(std::move(model), {.sequences_max = 256}, [](Token) { return std::string_view("x"); });
  for (int turn = 0; turn < turns; ++turn) {
    for (const int count : counts) {
      if (auto done = bench_engine(engine, name, count, 192, turn * 5 + 1, print); !done) return done;
    }
  }
  return {};
}

Result<std::unique_ptr<Model>> made_fp8() {
  return cuda::make_model(model::llama_1b(context_tokens),
                          {.is_fp8 = true, .step_tokens_max = 4096, .step_rows_max = 256}, random_rows);
}

Result<> bench_all(const Print& print) {
  const double before = process_seconds();
  const auto start = Clock::now();
  const cuda::Options usual{.step_tokens_max = 4096, .step_rows_max = 256};
  auto model = cuda::make_model(model::llama_1b(context_tokens), usual, random_rows);
  if (!model) return std::move(model).error();
  const double ready = process_seconds();
  const std::vector<Token> prompt = made_prompt(prompt_tokens, 0);
  const std::vector<BlockId> blocks{0, 1, 2, 3, 4, 5, 6, 7};
  const Chunk chunk{.tokens = prompt, .blocks = blocks, .rows = 1};
  if (auto done = (*model)->step({&chunk, 1}); !done) return done;
  const Choice choice;
  if (auto chosen = (*model)->choose({&choice, 1}); !chosen) return std::move(chosen).error();
  print(line("process to first token: %.2f s (%.2f before, %.2f until the model was ready, of it %.2f here)",
             process_seconds(), before, ready, seconds_since(start)));
  print((*model)->describe());
  if (auto done = bench_steps(**model, print); !done) return done;
  for (const int tokens : {128, 512, 1024, 2048, 4096}) {
    if (auto done = bench_prompt(**model, tokens, print); !done) return done;
  }
  if (auto done = bench_streams(std::move(*model), "engine", {1, 8, 64, 256}, 2, print); !done) return done;
  auto fp8 = made_fp8();
  if (!fp8) return std::move(fp8).error();
  return bench_streams(std::move(*fp8), "fp8 engine", {1, 64}, 2, print);
}

// Steps with weights of fp8 beside those of bf16: where they win, and what the widening of many rows costs.
Result<> bench_fp8(const Print& print) {
  for (const bool is_fp8 : {false, true}) {
    auto model = is_fp8 ? made_fp8()
                        : cuda::make_model(model::llama_1b(context_tokens),
                                           {.step_tokens_max = 4096, .step_rows_max = 256}, random_rows);
    if (!model) return std::move(model).error();
    print((*model)->describe());
    if (auto done = bench_steps(**model, print); !done) return done;
    if (auto done = bench_prompt(**model, 4096, print); !done) return done;
  }
  return {};
}

// Each feature of the steps switched off, beside all of them.
Result<> bench_ways(const Print& print) {
  struct Way {
    const char* name;
    cuda::Options options;
  };
  const std::vector<Way> ways{{"as it is", {}},
                              {"no overlap", {.overlaps = false}},
                              {"no graphs", {.graphs = false}},
                              {"neither", {.graphs = false, .overlaps = false}},
                              {"not tuned", {.tunes = false}}};
  for (const Way& way : ways) {
    auto model = cuda::make_model(model::llama_1b(context_tokens), way.options, random_rows);
    if (!model) return std::move(model).error();
    for (const int rows : {1, 8, 64, 256}) {
      auto time = step_milliseconds(**model, rows, 256, 60);
      if (!time) return std::move(time).error();
      print(line("%-10s step of %3d rows: %.3f ms", way.name, rows, *time));
    }
  }
  return {};
}

Result<> bench_kernels(const Print& print) {
  auto model = cuda::make_model(model::llama_1b(context_tokens),
                                {.step_rows_max = 256, .graphs = false, .overlaps = false, .tunes = false},
                                random_rows);
  if (!model) return std::move(model).error();
  for (const int rows : {1, 64, 256}) {
    if (auto time = step_milliseconds(**model, rows, 256, 2); !time) return std::move(time).error();
  }
  return bench_prompt(**model, 2048, print);
}

}  // namespace

Result<> bench_gpu(const std::string& part, const Print& print) {
  if (part.empty()) return bench_all(print);
  if (part == "ways") return bench_ways(print);
  if (part == "fp8") return bench_fp8(print);
  if (part == "kernels") return bench_kernels(print);
  return invalid("'" + part + "' is no part of it").remedy("`ways`, `fp8` or `kernels`, or nothing");
}

}  // namespace tutti::serve
