// bench/comm: how fast tutti's all-reduce is, in memory and over a network, beside Open MPI and Gloo.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <span>
#include <thread>

#include <nlohmann/json.hpp>

#include "common/all_reduce_peers.hpp"
#include "common/options.hpp"
#include "common/report.hpp"

namespace tutti::bench {
namespace {

using nlohmann::json;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr double line_gb_s = 0.125;  // 1 Gbit/s
constexpr std::size_t finalists = 2;

struct Counts {
  int turns = 7;
  int line_turns = 3;  // a slow line is the same in each
  int kills = 5;
  double seconds = 0.5;           // for each size
  double seconds_choosing = 0.1;  // the same, while the peers' settings are tried
  std::size_t bytes_max = 256 * mib;
  bool every_setting = true;
};
constexpr Counts quick_counts{.turns = 1,
                              .line_turns = 1,
                              .kills = 1,
                              .seconds = 0.05,
                              .seconds_choosing = 0.02,
                              .bytes_max = 16 * mib,
                              .every_setting = false};

struct Bench {
  Counts counts;
  Report report{"best peer"};
};

struct Goal {
  std::size_t bytes;
  Bar bar;
};

std::vector<Goal> goals_within(std::span<const Goal> goals, const Counts& counts) {
  std::vector<Goal> within;
  for (const Goal& goal : goals) {
    if (goal.bytes <= counts.bytes_max) within.push_back(goal);
  }
  return within;
}

// "64K", as tutti's flags and the names of the rows have it.
std::string short_bytes(std::size_t bytes) {
  return bytes < mib ? std::to_string(bytes / kib) + "K" : std::to_string(bytes / mib) + "M";
}

std::string long_bytes(std::size_t bytes) {
  return bytes < mib ? std::to_string(bytes / kib) + " KiB" : std::to_string(bytes / mib) + " MiB";
}

double gb_s(std::size_t bytes, double time_us) { return static_cast<double>(bytes) / time_us / 1e3; }

// ---- tutti's own numbers

std::vector<std::string> tutti_words(std::size_t bytes, double seconds,
                                     const std::vector<std::string>& more) {
  std::vector<std::string> words{TUTTI_BUILD_DIR "/bin/tutti",
                                 "bench",
                                 "comm",
                                 "--op",
                                 "all_reduce",
                                 "--bytes",
                                 short_bytes(bytes),
                                 "--time",
                                 std::to_string(static_cast<int>(seconds * 1e3)) + "ms",
                                 "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A field of the one measurement that was asked for.
Result<double> read_field(Result<std::string> printed, const char* field) {
  if (!printed) return std::move(printed).error();
  const auto parsed = json::parse(*printed, nullptr, false);
  const bool fits = parsed.is_array() && parsed.size() == 1 && parsed[0].is_object() &&
                    parsed[0].contains(field) && parsed[0][field].is_number();
  if (!fits) return failed("printed no " + std::string(field) + ": " + *printed).within("tutti bench comm");
  return parsed[0][field].get<double>();
}

Result<double> tutti_local(const char* field, int ranks, std::size_t bytes, double seconds,
                           const std::string& buffers) {
  return read_field(run_command(tutti_words(bytes, seconds,
                                            {"--ranks", std::to_string(ranks), "--transport", "auto",
                                             "--buffers", buffers}),
                                {}),
                    field);
}

// TCP by name: both ends are on this host, where shared memory would be found.
Result<double> tutti_time_us(const VethPair& pair, std::size_t bytes, double seconds) {
  static int port = 29'500;
  ++port;  // the last one may linger
  const auto words_of_rank = [&](int rank) {
    std::vector<std::string> words{"env", "RANK=" + std::to_string(rank), "WORLD_SIZE=2",
                                   "MASTER_ADDR=" + VethPair::address(0),
                                   "MASTER_PORT=" + std::to_string(port)};
    const auto program = tutti_words(bytes, seconds, {"--transport", "tcp"});
    words.insert(words.end(), program.begin(), program.end());
    return words;
  };
  return read_field(pair.run(words_of_rank, 120s), "time_us");
}

// ---- rows beside the peers

// Where the ranks run, and whose all-reduce is timed there.
struct Course {
  std::string name;
  std::string what;
  std::function<Result<double>(std::size_t bytes)> tutti_time_us;
  std::vector<Peer> peers;
  std::string missing;  // the peers that are not there, and why

  void add(const std::string& library, Result<std::vector<Peer>> more, const Counts& counts) {
    if (!more) {
      missing += (missing.empty() ? "" : "; ") + library + ": " + more.error().text();
      return;
    }
    if (!counts.every_setting) more->resize(1);
    peers.insert(peers.end(), more->begin(), more->end());
  }
};

Measurement measurement_of(const Peer& peer, std::size_t bytes, double seconds) {
  return [=]() -> Result<double> {
    auto times = peer.measure({.sizes = {bytes}, .seconds = seconds});
    if (!times) return std::move(times).error();
    if (!times->contains(bytes)) return failed("printed no time").within(peer.library);
    return times->at(bytes);
  };
}

struct Outcome {
  double tutti_us = 0;
  std::optional<double> peer_us;
  const Peer* peer = nullptr;
};

Result<Outcome> race(const Course& course, const std::vector<Peer>& peers, std::size_t bytes, int turns,
                     double seconds) {
  std::vector<Measurement> runners{[&] { return course.tutti_time_us(bytes); }};
  for (const Peer& peer : peers) runners.push_back(measurement_of(peer, bytes, seconds));
  auto times = measure_in_turns(runners, turns);
  if (!times) return std::move(times).error();
  // A virtual machine's CPUs are moved about beneath it, and for seconds at a time their caches are far
  // apart: each runner's best turn is the one that was not.
  const auto best = [&](std::size_t runner) {
    return *std::min_element((*times)[runner].begin(), (*times)[runner].end());
  };
  Outcome outcome{.tutti_us = best(0)};
  for (std::size_t at = 0; at < peers.size(); ++at) {
    const double time_us = best(at + 1);
    if (outcome.peer_us && *outcome.peer_us <= time_us) continue;
    outcome.peer_us = time_us;
    outcome.peer = &peers[at];
  }
  return outcome;
}

Row row_of(const Course& course, std::size_t bytes) {
  return {.name = course.name + "_" + short_bytes(bytes), .what = course.what + ", " + long_bytes(bytes)};
}

void set_values(Row& row, const Outcome& outcome, const std::function<double(double time_us)>& convert) {
  row.tutti = convert(outcome.tutti_us);
  if (outcome.peer == nullptr) return;
  row.peer = convert(*outcome.peer_us);
  row.peer_name = outcome.peer->library;
  row.note = outcome.peer->library + ": " + outcome.peer->setting;
}

void add_missing(Row& row, const std::string& missing) {
  if (!missing.empty()) row.note += (row.note.empty() ? "" : "; ") + missing;
}

// A bar of at most is one on the latency, one of at least is on the bandwidth.
Result<> measure_goal(Bench& bench, const Course& course, const Goal& goal, const std::vector<Peer>& peers) {
  auto outcome = race(course, peers, goal.bytes, bench.counts.turns, bench.counts.seconds);
  if (!outcome) return std::move(outcome).error();
  const bool latency = goal.bar.kind == Bar::Kind::ratio_at_most;
  Row row = row_of(course, goal.bytes);
  row.unit = latency ? "us" : "GB/s";
  row.bar = goal.bar;
  set_values(row, *outcome, [&](double time_us) { return latency ? time_us : gb_s(goal.bytes, time_us); });
  add_missing(row, course.missing);
  bench.report.add(std::move(row));
  return {};
}

Result<> measure_goals(Bench& bench, const Course& course, std::span<const Goal> all) {
  const auto goals = goals_within(all, bench.counts);
  Workload workload{.seconds = bench.counts.seconds_choosing};
  for (const Goal& goal : goals) workload.sizes.push_back(goal.bytes);
  auto best = fastest(course.peers, workload, finalists);
  if (!best) return std::move(best).error();
  for (const Goal& goal : goals) {
    if (auto done = measure_goal(bench, course, goal, (*best)[goal.bytes]); !done) return done;
  }
  return {};
}

// ---- on this host

constexpr std::array goals_2_ranks{
    Goal{1 * kib, {Bar::Kind::ratio_at_most, 1.0}}, Goal{64 * kib, {Bar::Kind::ratio_at_least, 1.3}},
    Goal{1 * mib, {Bar::Kind::ratio_at_least, 1.3}}, Goal{16 * mib, {Bar::Kind::ratio_at_least, 1.5}},
    Goal{256 * mib, {Bar::Kind::ratio_at_least, 2.0}}};
constexpr std::array goals_4_ranks{
    Goal{1 * kib, {Bar::Kind::ratio_at_most, 1.5}}, Goal{64 * kib, {Bar::Kind::ratio_at_least, 1.5}},
    Goal{1 * mib, {Bar::Kind::ratio_at_least, 1.5}}, Goal{16 * mib, {Bar::Kind::ratio_at_least, 1.5}},
    Goal{256 * mib, {Bar::Kind::ratio_at_least, 1.5}}};

Result<> measure_ranks(Bench& bench, int ranks, std::span<const Goal> goals) {
  Course course{.name = "ranks_" + std::to_string(ranks),
                .what = std::to_string(ranks) + " ranks on this host",
                .tutti_time_us = [&bench, ranks](std::size_t bytes) {
                  return tutti_local("time_us", ranks, bytes, bench.counts.seconds, "ordinary");
                }};
  course.add("Open MPI", mpi_peers(ranks), bench.counts);
  course.add("Gloo", gloo_peers(ranks), bench.counts);
  return measure_goals(bench, course, goals);
}

Result<> measure_2_ranks(Bench& bench) { return measure_ranks(bench, 2, goals_2_ranks); }
Result<> measure_4_ranks(Bench& bench) { return measure_ranks(bench, 4, goals_4_ranks); }

// ---- buffers of tutti's own, beside what the memory can do

Result<> measure_limit(Bench& bench, int ranks, std::size_t bytes) {
  const Measurement once = [&] {
    return tutti_local("limit_percent", ranks, bytes, bench.counts.seconds, "shared");
  };
  auto percents = measure_in_turns({once}, bench.counts.turns);
  if (!percents) return std::move(percents).error();
  const std::string count = std::to_string(ranks);
  bench.report.add({.name = "shared_" + count + "_ranks_" + short_bytes(bytes),
                    .what = count + " ranks, shared buffers, " + long_bytes(bytes) + ", of the limit",
                    .unit = "%",
                    .tutti = median(std::move(percents->front())),
                    .bar = Bar{Bar::Kind::value_at_least, 70}});
  return {};
}

Result<> measure_shared(Bench& bench) {
  for (const int ranks : {2, 4}) {
    for (const std::size_t bytes : {16 * mib, 256 * mib}) {
      if (bytes > bench.counts.bytes_max) continue;
      if (auto done = measure_limit(bench, ranks, bytes); !done) return done;
    }
  }
  return {};
}

// ---- two hosts and a cable

constexpr std::array goals_veth{Goal{16 * mib, {Bar::Kind::ratio_at_least, 1.2}},
                                Goal{256 * mib, {Bar::Kind::ratio_at_least, 1.2}}};
constexpr std::array goals_line{Goal{16 * mib, {Bar::Kind::value_at_least, 93}},
                                Goal{256 * mib, {Bar::Kind::value_at_least, 93}}};

// With no rate the line is as fast as the host.
Result<std::unique_ptr<VethPair>> make_line(const std::string& rate) {
  auto pair = VethPair::make();
  if (!pair || rate.empty()) return pair;
  if (auto limited = (*pair)->limit_rate(rate); !limited) return std::move(limited).error();
  return pair;
}

// Rows that say why there is nothing in them.
void add_unmeasured(Bench& bench, const Course& course, std::span<const Goal> goals, const std::string& why) {
  for (const Goal& goal : goals_within(goals, bench.counts)) {
    Row row = row_of(course, goal.bytes);
    row.bar = goal.bar;
    row.note = why;
    bench.report.add(std::move(row));
  }
}

using MeasureGoals = Result<> (*)(Bench&, const Course&, std::span<const Goal>);
Result<> measure_over(Bench& bench, const std::string& rate, Course course, std::span<const Goal> goals,
                      MeasureGoals measure_all) {
  const auto line = make_line(rate);
  if (!line) {
    if (interrupted()) return line.error();
    add_unmeasured(bench, course, goals, line.error().text());
    return {};
  }
  const VethPair& pair = **line;
  course.tutti_time_us = [&](std::size_t bytes) { return tutti_time_us(pair, bytes, bench.counts.seconds); };
  course.add("Gloo", gloo_peers(pair), bench.counts);
  return measure_all(bench, course, goals);
}

// In percent of the line's rate. Any algorithm fills a slow line: the peer's settings are not tried.
Result<> measure_fill(Bench& bench, const Course& course, std::span<const Goal> goals) {
  const std::vector<Peer> peers(course.peers.begin(),
                                course.peers.begin() + std::min<std::ptrdiff_t>(1, std::ssize(course.peers)));
  for (const Goal& goal : goals_within(goals, bench.counts)) {
    auto outcome = race(course, peers, goal.bytes, bench.counts.line_turns, bench.counts.seconds);
    if (!outcome) return std::move(outcome).error();
    Row row = row_of(course, goal.bytes);
    row.unit = "%";
    row.bar = goal.bar;
    set_values(row, *outcome, [&](double time_us) { return gb_s(goal.bytes, time_us) / line_gb_s * 100; });
    add_missing(row, course.missing);
    bench.report.add(std::move(row));
  }
  return {};
}

Result<> measure_veth(Bench& bench) {
  return measure_over(bench, "", {.name = "veth", .what = "2 ranks, two namespaces over veth"}, goals_veth,
                      measure_goals);
}

Result<> measure_line(Bench& bench) {
  return measure_over(bench, "1gbit", {.name = "line", .what = "2 ranks over 1 Gbit/s, of the line"},
                      goals_line, measure_fill);
}

// ---- kill: a rank dies, the others say so

struct Killed {
  double error_ms = 0;
  std::string error;
};

Result<Killed> kill_rank() {
  auto printed = run_command({TUTTI_BUILD_DIR "/bin/tutti", "bench", "comm", "--op", "all_reduce", "--bytes",
                              "1M", "--ranks", "8", "--kill-rank", "3", "--json"},
                             {});
  if (!printed) return std::move(printed).error();
  const auto parsed = json::parse(*printed, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("error_ms"))
    return failed("printed no error_ms: " + *printed).within("tutti bench comm --kill-rank");
  return Killed{parsed["error_ms"].get<double>(), parsed.value("error", "")};
}

Result<> measure_kill(Bench& bench) {
  Killed worst;
  for (int at = 0; at < bench.counts.kills; ++at) {
    auto killed = kill_rank();
    if (!killed) return std::move(killed).error();
    if (at == 0 || killed->error_ms > worst.error_ms) worst = std::move(*killed);
  }
  bench.report.add({.name = "kill",
                    .what = "8 ranks, one killed, all know, worst of " + std::to_string(bench.counts.kills),
                    .unit = "ms",
                    .tutti = worst.error_ms,
                    .bar = Bar{Bar::Kind::value_at_most, 1000},
                    .note = worst.error});
  return {};
}

// ---- the program

struct Part {
  const char* name;
  Result<> (*measure)(Bench&);
};
constexpr std::array<Part, 6> parts{{{"ranks_2", measure_2_ranks},
                                     {"ranks_4", measure_4_ranks},
                                     {"shared", measure_shared},
                                     {"veth", measure_veth},
                                     {"line", measure_line},
                                     {"kill", measure_kill}}};

void print_host() {
  const double busy = busy_cores(500ms);
  std::printf("f32 sums on %u cores, the best of some turns on each side, peers at their best setting\n",
              std::thread::hardware_concurrency());
  if (busy > 0.2)
    std::printf("The host is not quiet, %.1f of its cores work: do not trust what follows.\n", busy);
}

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  catch_interrupts();
  Bench bench{.counts = options->quick ? quick_counts : Counts{}};
  print_host();
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
  return tutti::bench::exit_code("bench_comm", tutti::bench::run({words + 1, words + count}));
}
