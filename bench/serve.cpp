// bench/serve: how long an engine takes to start, and what HTTP costs: tokens a second of the same streams
// through HTTP and without, in turns.
#include <array>
#include <cstdio>
#include <future>
#include <memory>

#include "base/clock/clock.hpp"
#include "base/json/parse.hpp"
#include "common/measure.hpp"
#include "common/options.hpp"
#include "common/report.hpp"
#include "lab/asking/asking.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "serve/cpu/tiny_folder_test.hpp"
#include "serve/engine/engine.hpp"
#include "serve/load/load.hpp"
#include "support/process.hpp"

namespace tutti::bench {
namespace {

constexpr std::size_t streams = 16;
constexpr std::int64_t prompt_tokens = 16;
constexpr double start_seconds_max = 2;
constexpr double http_ratio_min = 0.9;

model::Shape shape_25m() {
  model::Shape shape = serve::cpu::small_llama();
  shape.vocabulary = 8192;
  shape.layers = 6;
  shape.hidden = 512;
  shape.heads = 8;
  shape.kv_heads = 8;
  shape.head_size = 64;
  shape.intermediate = 1536;
  shape.context = 2048;
  shape.tied = true;
  return shape;
}

struct Bench {
  Options options;
  int turns = 5;
  std::int64_t output_tokens = 128;
  support::TempFolder folder;
  serve::cpu::TinyFolder model{shape_25m(), tokenizer::Tokenizer::bytes().json()};
  Report report{"no peer"};
};

// A `tutti engine` of its own, and where it answers.
class Engine {
 public:
  explicit Engine(const Bench& bench)
      : output_(bench.folder.path() + "/engine"),
        process_({support::tutti_program, "engine", bench.model.path(), "--listen", "127.0.0.1:0", "--device",
                  "cpu", "--json"},
                 output_) {}
  ~Engine() { process_.signal(15), process_.wait(), std::remove(output_.c_str()); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Result<net::Target> target() const {
    const bool told =
        support::eventually([&] { return support::read_text(output_).find('\n') != std::string::npos; });
    if (!told) return failed("it does not answer").within("tutti engine");
    const auto root = json::parse(support::read_text(output_));
    if (!root || root->find("url") == nullptr) return failed("it does not say where it answers");
    const std::string url = *root->find("url")->text();
    const std::size_t begin = url.find("//") + 2;
    auto target = net::parse_target(url.substr(begin, url.find('/', begin) - begin));
    if (target) target->who = "engine";
    return target;
  }

 private:
  std::string output_;
  support::Process process_;
};

asking::Plan plan_of(const net::Target& target, std::size_t count, std::int64_t output_tokens) {
  Prng random(1);
  return {.target = target,
          .model = "",
          .arrivals = asking::even_arrivals(
              count, {.prompt_tokens = prompt_tokens, .output_tokens = output_tokens}, 0, random),
          .concurrency = count};
}

Result<asking::Report> ask(const net::Target& target, std::size_t count, std::int64_t output_tokens) {
  const auto asked = asking::ask_all(plan_of(target, count, output_tokens), [](std::size_t) { return true; });
  if (!asked) return asked.error();
  asking::Report report = asking::summarize(asked->samples, asked->took, {});
  if (!report.problems.empty()) return failed(report.problems.begin()->first);
  return report;
}

Result<double> seconds_to_the_first_token(const Bench& bench) {
  const auto begin = SteadyClock::now();
  const Engine engine(bench);
  const auto target = engine.target();
  if (!target) return target.error();
  if (auto asked = ask(*target, 1, 1); !asked) return std::move(asked).error();
  return seconds_since(begin);
}

Result<> measure_start(Bench& bench) {
  auto values = measure_in_turns({[&] { return seconds_to_the_first_token(bench); }}, bench.turns);
  if (!values) return std::move(values).error();
  bench.report.add({.name = "start",
                    .what = "25 M f32, program start to first token over HTTP",
                    .unit = "s",
                    .tutti = median(std::move((*values)[0])),
                    .bar = Bar{Bar::Kind::value_at_most, start_seconds_max}});
  return {};
}

// The same streams, inside this process.
Result<double> speed_without_http(serve::Engine& engine, std::int64_t output_tokens) {
  std::vector<std::promise<void>> ends(streams);
  const auto begin = SteadyClock::now();
  for (std::size_t nth = 0; nth < streams; ++nth) {
    serve::Request request{.tokens_max = static_cast<std::int32_t>(output_tokens)};
    Prng random(nth);
    for (std::int64_t at = 0; at < prompt_tokens; ++at)
      request.prompt.push_back(static_cast<serve::Token>(random.between(10, 249)));
    auto submitted = engine.submit(std::move(request), [&end = ends[nth]](serve::Piece&& piece) {
      if (piece.finish) end.set_value();
    });
    if (!submitted) return std::move(submitted).error();
  }
  for (auto& end : ends) end.get_future().wait();
  return static_cast<double>(streams) * static_cast<double>(output_tokens) / seconds_since(begin);
}

Result<> measure_http(Bench& bench) {
  const Engine program(bench);
  const auto target = program.target();
  if (!target) return target.error();
  auto loaded = serve::load(bench.model.path(), {});
  if (!loaded) return std::move(loaded).error();
  serve::Engine engine(std::move(loaded->model), {.keeps_prefixes = false}, loaded->token_bytes());
  auto values = measure_in_turns({[&]() -> Result<double> {
                                    auto asked = ask(*target, streams, bench.output_tokens);
                                    if (!asked) return std::move(asked).error();
                                    return asked->output_tokens_per_second;
                                  },
                                  [&] { return speed_without_http(engine, bench.output_tokens); }},
                                 bench.turns);
  if (!values) return std::move(values).error();
  bench.report.add({.name = "http",
                    .what = "25 M f32, 16 streams through HTTP",
                    .unit = "tokens/s",
                    .tutti = median(std::move((*values)[0])),
                    .peer = median(std::move((*values)[1])),
                    .peer_name = "the engine alone",
                    .bar = Bar{Bar::Kind::ratio_at_least, http_ratio_min}});
  return {};
}

struct Part {
  const char* name;
  Result<> (*measure)(Bench&);
};
constexpr std::array parts{Part{"start", measure_start}, Part{"http", measure_http}};

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  Bench bench{.options = *options};
  if (options->quick) bench.turns = 1, bench.output_tokens = 16;
  catch_interrupts();
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
  return tutti::bench::exit_code("bench_serve", tutti::bench::run({words + 1, words + count}));
}
