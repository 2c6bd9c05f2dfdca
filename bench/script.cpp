// bench/script: a TorchScript model behind HTTP: requests a second of 64 clients with batches, beside the
// same server without.
#include <array>
#include <atomic>
#include <cstdio>

#include "base/clock/clock.hpp"
#include "base/json/parse.hpp"
#include "common/measure.hpp"
#include "common/options.hpp"
#include "common/report.hpp"
#include "net/http/client.hpp"
#include "support/process.hpp"

namespace tutti::bench {
namespace {

constexpr int clients = 64;
constexpr int columns = 256;
constexpr double batching_ratio_min = 2;

// 4.7 million weights: enough that reading them once for one row is what a request costs.
const char* const maker = R"(
import sys, torch
torch.manual_seed(1)
mlp = torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                          torch.nn.Linear(2048, 10)).eval()
torch.jit.script(mlp).save(sys.argv[1] + '/mlp.pt')
open(sys.argv[1] + '/mlp.json', 'w').write('{"inputs":[{"name":"x","datatype":"FP32","shape":[-1,256]}]}')
)";

struct Bench {
  Options options;
  int turns = 5;
  Duration time = 4s;  // of one measurement
  support::TempFolder folder;
  Report report{"no peer"};
};

// A `tutti engine` of its own, and where it answers.
class Engine {
 public:
  Engine(const Bench& bench, const std::string& name, const std::vector<std::string>& flags)
      : output_(bench.folder.path() + "/" + name), process_(words(bench, flags), output_) {}
  ~Engine() { process_.signal(15), process_.wait(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Result<net::Target> target() const {
    const bool told =
        support::eventually([&] { return support::read_text(output_).find('\n') != std::string::npos; });
    if (!told) return failed(support::read_text(output_ + ".err")).within("tutti engine");
    const auto root = json::parse(support::read_text(output_));
    if (!root || root->find("url") == nullptr) return failed("it does not say where it answers");
    const std::string url = *root->find("url")->text();
    const std::size_t begin = url.find("//") + 2;
    auto target = net::parse_target(url.substr(begin, url.find('/', begin) - begin));
    if (target) target->who = "engine";
    return target;
  }

 private:
  static std::vector<std::string> words(const Bench& bench, const std::vector<std::string>& flags) {
    std::vector<std::string> all{
        support::tutti_program, "engine", bench.folder.path() + "/mlp.pt", "--listen",
        "127.0.0.1:0",          "--json"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }

  std::string output_;
  support::Process process_;
};

std::string a_row() {
  std::string body =
      R"({"inputs":[{"name":"x","shape":[1,)" + std::to_string(columns) + R"(],"datatype":"FP32","data":[)";
  for (int at = 0; at < columns; ++at) body += (at > 0 ? "," : "") + std::to_string(at % 7 - 3);
  return body + "]}]}";
}

// Each client asks again as soon as it is answered.
Result<double> requests_per_second(const net::Target& target, Duration time) {
  std::atomic<int> answered = 0;
  const std::string body = a_row();
  const auto begin = SteadyClock::now();
  auto done = in_parallel(clients, [&](int) -> Result<> {
    net::Client client(target, "");
    while (SteadyClock::now() - begin < time) {
      const auto answer = client.request("POST", "/v2/models/mlp/infer", body);
      if (!answer) return answer.error();
      if (answer->status != 200) return failed(answer->body);
      ++answered;
    }
    return {};
  });
  if (!done) return std::move(done).error();
  return answered / seconds_since(begin);
}

Result<> measure_batching(Bench& bench) {
  support::write_text(bench.folder.path() + "/make.py", maker);
  if (auto made =
          run_command({"/usr/bin/python3", bench.folder.path() + "/make.py", bench.folder.path()}, {});
      !made)
    return std::move(made).error().remedy("the model is written by python3-torch");
  const Engine batched(bench, "batched", {"--max-batch", "64", "--max-delay", "2ms"});
  const Engine single(bench, "single", {"--max-batch", "1"});
  const auto batched_target = batched.target();
  if (!batched_target) return batched_target.error();
  const auto single_target = single.target();
  if (!single_target) return single_target.error();
  auto values = measure_in_turns({[&] { return requests_per_second(*batched_target, bench.time); },
                                  [&] { return requests_per_second(*single_target, bench.time); }},
                                 bench.turns);
  if (!values) return std::move(values).error();
  bench.report.add({.name = "batching",
                    .what = "TorchScript MLP, 4.7 M f32, 64 clients, one row each",
                    .unit = "requests/s",
                    .tutti = median(std::move((*values)[0])),
                    .peer = median(std::move((*values)[1])),
                    .peer_name = "without batches",
                    .bar = Bar{Bar::Kind::ratio_at_least, batching_ratio_min}});
  return {};
}

struct Part {
  const char* name;
  Result<> (*measure)(Bench&);
};
constexpr std::array parts{Part{"batching", measure_batching}};

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  Bench bench{.options = *options};
  if (options->quick) bench.turns = 1, bench.time = 1s;
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
  return tutti::bench::exit_code("bench_script", tutti::bench::run({words + 1, words + count}));
}
