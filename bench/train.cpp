// bench/train: how fast `tutti-worker train` is on this machine's CPUs, beside the loop that people write
// with PyTorch, and how long a checkpoint holds it up, beside PyTorch's async_save, or torch.save where there
// is no other. Same libtorch, same model, same threads, in turns.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.hpp"
#include "common/measure.hpp"
#include "common/options.hpp"
#include "common/report.hpp"
#include "learn/checkpoint/write.hpp"
#include "learn/recipe/recipe.hpp"
#include "support/process.hpp"

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* python = "/usr/bin/python3";
constexpr std::int64_t vocabulary = 257;  // bytes and the end of a text
constexpr std::size_t state_bytes = 1'020'000'000;

struct Bench {
  Options options;
  Report report{"PyTorch"};
  support::TempFolder folder;
  int turns = 3;
  int steps = 8;
  int warm_up = 2;

  std::string file(const std::string& name) const { return folder.path() + "/" + name; }
};

// About 10 million parameters.
recipe::Recipe small_gpt(const Bench& bench) {
  recipe::Recipe recipe;
  recipe.data = bench.file("data");
  recipe.layers = 6;
  recipe.hidden = 384;
  recipe.heads = 6;
  recipe.context = 256;
  recipe.batch = 8;
  recipe.steps = bench.warm_up + bench.steps;
  recipe.checkpoint_every = 1'000'000;
  return recipe;
}

Result<> pack_data(const Bench& bench) {
  std::ofstream text(bench.file("text.txt"));
  for (int line = 0; line < 20'000; ++line)
    text << "line " << line * 7919 % 10'007 << " of a text to learn\n";
  text.close();
  auto packed = run_command({TUTTI_BUILD_DIR "/bin/tutti", "data", "pack", bench.file("text.txt"),
                             "--tokenizer", "bytes", "--out", bench.file("data")},
                            {});
  return packed ? Result<>() : Result<>(std::move(packed).error());
}

Environment rank_environment(int rank, int ranks, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(ranks)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"OMP_NUM_THREADS",
           std::to_string(std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(ranks)))}};
}

// All ranks to their end; what rank 0 printed.
Result<std::string> run_ranks(const std::vector<std::string>& words, int ranks) {
  auto port = free_port();
  if (!port) return std::move(port).error();
  std::string printed;
  auto done = in_parallel(ranks, [&](int rank) -> Result<> {
    auto output = run_command(words, rank_environment(rank, ranks, *port), std::chrono::minutes(10));
    if (!output) return std::move(output).error();
    if (rank == 0) printed = *output;
    return {};
  });
  if (!done) return std::move(done).error();
  return printed;
}

// A new run of the recipe; its folder.
Result<std::string> train(const Bench& bench, const recipe::Recipe& recipe, int ranks, std::string& printed) {
  const std::string run = bench.file("run");
  fs::remove_all(run);
  fs::create_directories(run);
  std::ofstream(run + "/recipe.json") << recipe::json_of(recipe);
  auto shape = recipe::shape_of(recipe, "", vocabulary);
  if (!shape) return std::move(shape).error();
  std::ofstream(run + "/config.json") << model::config_json(*shape);
  auto output = run_ranks({TUTTI_BUILD_DIR "/bin/tutti-worker", "train", run}, ranks);
  if (!output) return std::move(output).error();
  printed = std::move(*output);
  return run;
}

Result<double> tutti_tokens_per_s(const Bench& bench, int ranks) {
  std::string printed;
  auto run = train(bench, small_gpt(bench), ranks, printed);
  if (!run) return std::move(run).error();
  std::vector<double> speeds;
  std::ifstream metrics(*run + "/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) speeds.push_back(json::parse(line)["tokens_per_s"]);
  speeds.erase(speeds.begin(), speeds.begin() + bench.warm_up);
  return median(std::move(speeds));
}

Result<double> torch_tokens_per_s(const Bench& bench, int ranks) {
  const recipe::Recipe recipe = small_gpt(bench);
  const json options{
      {"vocabulary", vocabulary},
      {"layers", recipe.layers},
      {"hidden", recipe.hidden},
      {"heads", recipe.heads},
      {"context", recipe.context},
      {"batch", recipe.batch},
      {"threads", std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(ranks))},
      {"warm_up", bench.warm_up},
      {"steps", bench.steps}};
  auto printed = run_ranks({python, TUTTI_SOURCE_DIR "/bench/peers/torch_train.py", options.dump()}, ranks);
  if (!printed) return std::move(printed).error();
  return json::parse(*printed)["tokens_per_s"].get<double>();
}

Result<> measure_speed(Bench& bench, int ranks, double bar) {
  auto values = measure_in_turns(
      {[&] { return tutti_tokens_per_s(bench, ranks); }, [&] { return torch_tokens_per_s(bench, ranks); }},
      bench.turns);
  if (!values) return std::move(values).error();
  bench.report.add({.name = "cpu_" + std::to_string(ranks) + "_ranks",
                    .what = ranks == 1 ? "1 rank, GPT of 10.8 M parameters" : "dp2, GPT of 10.8 M parameters",
                    .unit = "tokens/s",
                    .tutti = median(std::move((*values)[0])),
                    .peer = median(std::move((*values)[1])),
                    .peer_name = ranks == 1 ? "a plain loop" : "DDP, Gloo",
                    .bar = Bar{Bar::Kind::ratio_at_least, bar}});
  return {};
}

Result<> measure_one_rank(Bench& bench) { return measure_speed(bench, 1, 1.0); }
Result<> measure_two_ranks(Bench& bench) { return measure_speed(bench, 2, 1.2); }

// ---- checkpoints

// The numbers before "ms" in the lines that tell how long training waited.
std::vector<double> stalls_in(const std::string& printed) {
  constexpr std::string_view before = "training waited ";
  std::vector<double> stalls;
  for (auto at = printed.find(before); at != std::string::npos; at = printed.find(before, at + 1)) {
    stalls.push_back(std::strtod(printed.c_str() + at + before.size(), nullptr));
  }
  return stalls;
}

Result<double> tutti_stall_ms(const Bench& bench) {
  recipe::Recipe recipe = small_gpt(bench);
  recipe.layers = 12;
  recipe.hidden = 768;
  recipe.heads = 12;
  recipe.context = 128;
  recipe.batch = 1;
  // Far enough apart that one is on the disk before the next begins.
  recipe.steps = 30;
  recipe.checkpoint_every = 15;
  std::string printed;
  if (auto run = train(bench, recipe, 1, printed); !run) return std::move(run).error();
  const auto stalls = stalls_in(printed);
  if (stalls.empty()) return failed("the run told of no checkpoint");
  return *std::max_element(stalls.begin(), stalls.end());
}

struct TorchSave {
  std::string peer;   // which of the two was measured
  std::string torch;  // version
};

Result<double> torch_save_ms(const Bench& bench, TorchSave& measured) {
  auto printed = run_command({python, TUTTI_SOURCE_DIR "/bench/peers/torch_save.py", bench.folder.path(),
                              std::to_string(state_bytes)},
                             {}, std::chrono::minutes(5));
  if (!printed) return std::move(printed).error();
  const json said = json::parse(*printed);
  measured = {said["peer"], said["torch"]};
  return said["seconds"].get<double>() * 1e3;
}

// Beside a peer that saves in the background too, training is not to wait longer; beside the other, far less.
Result<> measure_stall(Bench& bench) {
  TorchSave measured;
  auto values = measure_in_turns(
      {[&] { return tutti_stall_ms(bench); }, [&] { return torch_save_ms(bench, measured); }}, bench.turns);
  if (!values) return std::move(values).error();
  bench.report.add({.name = "checkpoint_stall",
                    .what = "training waits for a checkpoint of 1.02 GB",
                    .unit = "ms",
                    .tutti = median(std::move((*values)[0])),
                    .peer = median(std::move((*values)[1])),
                    .peer_name = measured.peer,
                    .bar = Bar{Bar::Kind::ratio_at_most, measured.peer == "torch.save" ? 0.1 : 1.0},
                    .note = measured.peer + " of torch " + measured.torch});
  return {};
}

Result<double> tutti_write_gb_s(const Bench& bench) {
  const std::vector<float> values(state_bytes / sizeof(float), 1.5F);
  const auto count = static_cast<std::int64_t>(values.size());
  const checkpoint::Piece piece{.tensor = "state",
                                .shape = {count},
                                .box = checkpoint::whole({count}),
                                .bytes = std::as_bytes(std::span(values))};
  const std::string folder = bench.file("written");
  fs::create_directories(folder);
  const auto start = Clock::now();
  auto record = checkpoint::write_file(folder, 0, {&piece, 1});
  const double seconds = seconds_since(start);
  fs::remove_all(folder);
  if (!record) return std::move(record).error();
  return static_cast<double>(state_bytes) / seconds * 1e-9;
}

Result<double> dd_write_gb_s(const Bench& bench) {
  const std::string file = bench.file("dd");
  const auto start = Clock::now();
  auto done =
      run_command({"dd", "if=/dev/zero", "of=" + file, "bs=8M", "count=122", "conv=fsync", "status=none"}, {},
                  std::chrono::minutes(5));
  const double seconds = seconds_since(start);
  fs::remove(file);
  if (!done) return std::move(done).error();
  return 122.0 * (8 << 20) / seconds * 1e-9;
}

Result<> measure_writing(Bench& bench) {
  auto values = measure_in_turns(
      {[&] { return tutti_write_gb_s(bench); }, [&] { return dd_write_gb_s(bench); }}, bench.turns);
  if (!values) return std::move(values).error();
  bench.report.add({.name = "checkpoint_write",
                    .what = "a checkpoint of 1.02 GB is on the disk",
                    .unit = "GB/s",
                    .tutti = median(std::move((*values)[0])),
                    .peer = median(std::move((*values)[1])),
                    .peer_name = "dd",
                    .bar = Bar{Bar::Kind::ratio_at_least, 0.8}});
  return {};
}

struct Part {
  const char* name;
  Result<> (*measure)(Bench&);
};
constexpr std::array parts{Part{"one", measure_one_rank}, Part{"two", measure_two_ranks},
                           Part{"stall", measure_stall}, Part{"write", measure_writing}};

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  if (!fs::exists(python) || !run_command({python, "-c", "import torch"}, {})) {
    return failed("the peer is missing").remedy("apt install python3-torch");
  }
  Bench bench{.options = *options};
  if (options->quick) bench.turns = 1, bench.steps = 3;
  catch_interrupts();
  if (auto packed = pack_data(bench); !packed) return packed;
  std::printf("%u cores, medians in turns, the same libtorch on both sides\n",
              std::thread::hardware_concurrency());
  bench.report.print_head();
  for (const Part& part : parts) {
    if (!bench.options.wants(part.name)) continue;
    if (auto done = part.measure(bench); !done) return std::move(done).error().within(part.name);
  }
  return bench.report.end(*options);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  return tutti::bench::exit_code("bench_train", tutti::bench::run({words + 1, words + count}));
}
