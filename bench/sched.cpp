// bench/sched: the scheduler on public traces, at scale, and under faults; --traces DIR is the folder of the
// traces.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "common/options.hpp"
#include "common/worlds.hpp"
#include "lab/replay/contest.hpp"
#include "lab/replay/csv.hpp"
#include "lab/replay/replay.hpp"
#include "lab/replay/saturate.hpp"
#include "lab/replay/scale.hpp"

namespace tutti::bench {
namespace {

struct Bench {
  std::string traces;
  bool quick = false;
  Report report{"peer"};

  // The path of a trace, "" if it is not there, which is said in the table.
  std::string find(const std::string& name, const std::string& row) {
    const std::string file = traces + "/" + name;
    struct stat found {};
    if (!traces.empty() && ::stat(file.c_str(), &found) == 0) return file;
    report.add({.name = row,
                .what = row,
                .unit = "",
                .tutti = {},
                .peer = {},
                .bar = {},
                .note = traces.empty() ? "needs " + name + ": name the folder of the traces with --traces DIR"
                                       : "absent: " + file});
    return "";
  }
};

const sched::Policy& policy(const char* name) { return *sched::find_policy(name).value(); }

// ---- openb: how full a cluster gets

Result<> measure_openb(Bench& bench) {
  const std::string nodes = bench.find("openb/openb_node_list_gpu_node.csv.gz", "openb nodes");
  if (nodes.empty()) return {};
  auto fleet = replay::read_fleet(nodes);
  if (!fleet) return std::move(fleet).error();
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = 42; seed <= (bench.quick ? 42U : 51U); ++seed) seeds.push_back(seed);
  for (const char* list : {"default", "gpushare40", "multigpu30", "cpu100"}) {
    const std::string row = "openb " + std::string(list) + ", GPUs given out";
    const std::string pods = bench.find("openb/openb_pod_list_" + std::string(list) + ".csv.gz", row);
    if (pods.empty()) continue;
    auto tasks = replay::read_tasks(pods);
    if (!tasks) return std::move(tasks).error();
    const double ours = replay::saturate(*fleet, *tasks, policy("tutti"), seeds, nullptr).mean();
    const double fgd = replay::saturate(*fleet, *tasks, policy("fgd"), seeds, nullptr).mean();
    const bool published = std::string(list) == "default";
    bench.report.add(
        {.name = "openb_" + std::string(list),
         .what = row,
         .unit = "%",
         .tutti = ours,
         .peer = fgd,
         .peer_name = "own fgd",
         .bar = published ? Bar{Bar::Kind::value_at_least, 95.4} : Bar{Bar::Kind::ratio_at_least, 1},
         .note = published ? "published: FGD 95.39, BestFit 93.08" : ""});
  }
  return {};
}

// ---- muri: an overloaded cluster of 8 x 8 V100

Result<replay::Replayed> replay_with(const char* name, std::int64_t nodes,
                                     const std::vector<replay::TraceJob>& trace) {
  replay::Fleet fleet;
  replay::FleetGroup group{.nodes = nodes};
  for (const replay::TraceJob& job : trace) {
    if (!job.gpu_type.empty()) group.model = job.gpu_type;
  }
  replay::add_group(fleet, group);
  replay::ReplayOptions options;
  options.policy = &policy(name);
  return replay::replay(fleet, trace, options);
}

Result<> measure_muri(Bench& bench) {
  const std::string file = bench.find("jobs/muri_testbed400.csv.gz", "muri_testbed400");
  if (file.empty()) return {};
  auto trace = replay::read_trace(file, "");
  if (!trace) return std::move(trace).error();
  const auto ours = replay_with("tutti", 8, *trace);
  const auto srtf = replay_with("srtf", 8, *trace);
  if (!ours) return ours.error();
  if (!srtf) return srtf.error();
  struct Measure {
    const char* name;
    double (replay::Replayed::*of)() const;
    double tiresias;
    double ideal;
  };
  const std::array<Measure, 3> measures{{{"average JCT", &replay::Replayed::jct_mean_s, 337, 220},
                                         {"p99 JCT", &replay::Replayed::jct_p99_s, 2813, 2509},
                                         {"makespan", &replay::Replayed::makespan_s, 3960, 3813}}};
  for (const Measure& measure : measures) {
    const double value = ((*ours).*measure.of)() / 1000;
    bench.report.add({.name = "muri_" + std::string(measure.name),
                      .what = "muri, tutti without durations, " + std::string(measure.name),
                      .unit = "ks",
                      .tutti = value,
                      .peer = measure.tiresias,
                      .peer_name = "Tiresias",
                      .bar = Bar{Bar::Kind::ratio_at_most, 1},
                      .note = ""});
  }
  for (const Measure& measure : measures) {
    const double value = ((*srtf).*measure.of)() / 1000;
    bench.report.add({.name = "muri_srtf_" + std::string(measure.name),
                      .what = "muri, policy srtf, " + std::string(measure.name) + ", off the ideal replay",
                      .unit = "%",
                      .tutti = 100 * std::abs(value / measure.ideal - 1),
                      .peer = {},
                      .bar = Bar{Bar::Kind::value_at_most, 2},
                      .note = ""});
  }
  return {};
}

// ---- whole clusters: against a policy that knows durations, and one that knows nothing

// As many nodes as make the mean load this, and at least those of the largest job. The traces do not tell the
// size of their clusters; published ones of their kind are used to about a half.
constexpr std::array<double, 2> loads{0.5, 0.8};

std::int64_t nodes_for(const std::vector<replay::TraceJob>& trace, double load) {
  double work = 0;
  Duration end{};
  std::int32_t largest = 1;
  for (const replay::TraceJob& job : trace) {
    work += std::chrono::duration<double>(job.duration).count() * job.gpus;
    end = std::max(end, job.submit + job.duration);
    largest = std::max(largest, job.gpus);
  }
  const double mean = work / std::chrono::duration<double>(end - trace.front().submit).count();
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::ceil(mean / load / 8)), (largest + 7) / 8);
}

Result<> compare(Bench& bench, const std::string& what, const std::vector<replay::TraceJob>& trace,
                 double load) {
  const std::int64_t nodes = nodes_for(trace, load);
  const auto ours = replay_with("tutti", nodes, trace);
  const auto srtf = replay_with("srtf", nodes, trace);
  const auto fifo = replay_with("fifo", nodes, trace);
  for (const auto* one : {&ours, &srtf, &fifo}) {
    if (!*one) return one->error();
  }
  char note[160];
  std::snprintf(note, sizeof note, "%zu jobs, %lld nodes; fifo %.1f ks; %zu preemptions, srtf %zu",
                trace.size(), static_cast<long long>(nodes), fifo->jct_mean_s() / 1000, ours->preemptions,
                srtf->preemptions);
  char row[80];
  std::snprintf(row, sizeof row, "%s, load %.1f, average JCT", what.c_str(), load);
  bench.report.add({.name = row,
                    .what = row,
                    .unit = "ks",
                    .tutti = ours->jct_mean_s() / 1000,
                    .peer = srtf->jct_mean_s() / 1000,
                    .peer_name = "srtf",
                    .bar = Bar{Bar::Kind::ratio_at_most, 1.3},
                    .note = note});
  return {};
}

Result<> measure_clusters(Bench& bench) {
  const std::string itp = bench.find("jobs/ms_itp_2021.csv.gz", "ms_itp_2021");
  if (!itp.empty()) {
    auto csv = replay::read_csv(itp);
    if (!csv) return std::move(csv).error();
    auto column = csv->need("partition");
    if (!column) return std::move(column).error();
    std::set<std::string> partitions;
    for (const auto& row : csv->rows) partitions.insert(row[static_cast<std::size_t>(*column)]);
    for (const std::string& partition : partitions) {
      auto trace = replay::read_trace(itp, partition);
      if (!trace) return std::move(trace).error();
      for (const double load : loads) {
        if (auto done = compare(bench, "ms_itp " + partition, *trace, load); !done) return done;
      }
      if (bench.quick) break;
    }
  }
  const std::string philly = bench.find("jobs/philly_pollux.csv.gz", "philly_pollux");
  if (philly.empty() || bench.quick) return {};
  auto trace = replay::read_trace(philly, "");
  if (!trace) return std::move(trace).error();
  for (const double load : loads) {
    if (auto done = compare(bench, "philly", *trace, load); !done) return done;
  }
  return {};
}

// ---- scale

Result<> measure_scale(Bench& bench) {
  const auto out = replay::scale({});
  if (!out) return out.error();
  char note[120];
  std::snprintf(note, sizeof note,
                "%lld nodes in a tree of 4 levels, 100,000 gangs of 1 to 4,096 GPUs, %.0f on average",
                static_cast<long long>(out->nodes), out->mean_gpus);
  const auto add = [&](const char* what, const char* unit, double value, Bar bar, const std::string& why) {
    bench.report.add(
        {.name = what, .what = what, .unit = unit, .tutti = value, .peer = {}, .bar = bar, .note = why});
  };
  add("gang placements on one core", "/s", out->placements_per_s, {Bar::Kind::value_at_least, 50'000}, note);
  add("one pass over the blocked queue", "ms", out->pass_ms, {Bar::Kind::value_at_most, 1000}, "");
  std::snprintf(note, sizeof note, "of %d users in %d queues", replay::crowd_users, replay::crowd_queues);
  add("the same, of a crowd", "ms", out->crowd_pass_ms, {Bar::Kind::value_at_most, 1000}, note);
  const auto worst = replay::contest({});
  if (!worst) return worst.error();
  add("a pass in which many make way", "ms", worst->making_way_ms, {Bar::Kind::value_at_most, 3000},
      "on each GPU runs a gang that yields, and gangs of 8 to 4,096 GPUs wait");
  add("the same, in vain", "ms", worst->in_vain_ms, {Bar::Kind::value_at_most, 3000},
      "the GPUs would suffice, the CPUs do not");
  add("the same, of 100,000 shapes", "ms", worst->many_shapes_ms, {Bar::Kind::value_at_most, 10'000}, "");
  add("a pass in which all want to grow", "ms", worst->growing_ms, {Bar::Kind::value_at_most, 3000},
      "and nobody can");
  add("resident", "MiB", out->resident_mib, {Bar::Kind::value_at_most, 2048}, "");
  return {};
}

Result<> measure_controller(Bench& bench) { return measure_agents(bench.report, bench.quick); }
Result<> measure_chaos(Bench& bench) { return measure_worlds(bench.report, bench.quick); }

// ---- the program

struct Part {
  const char* name;
  Result<> (*measure)(Bench&);
};
constexpr std::array<Part, 6> parts{{{"openb", measure_openb},
                                     {"muri", measure_muri},
                                     {"clusters", measure_clusters},
                                     {"scale", measure_scale},
                                     {"agents", measure_controller},
                                     {"chaos", measure_chaos}}};

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  Bench bench{.traces = options->traces, .quick = options->quick};
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
  return tutti::bench::exit_code("bench_sched", tutti::bench::run({words + 1, words + count}));
}
