// bench/chaos: worlds full of faults in a second, and the real controller with 27,500 simulated agents.
#include <array>

#include "common/options.hpp"
#include "common/worlds.hpp"

namespace tutti::bench {
namespace {

struct Part {
  const char* name;
  Result<> (*measure)(Report&, bool quick);
};
constexpr std::array<Part, 2> parts{{{"seeds", measure_worlds}, {"agents", measure_agents}}};

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  Report report("no peer");
  report.print_head();
  for (const Part& part : parts) {
    if (!options->wants(part.name)) continue;
    if (auto done = part.measure(report, options->quick); !done)
      return std::move(done).error().within(part.name);
  }
  return report.end(*options);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  return tutti::bench::exit_code("bench_chaos", tutti::bench::run({words + 1, words + count}));
}
