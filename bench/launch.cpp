// bench/launch: how fast gangs start, jobs pass, submits are kept and lost nodes replaced, beside Slurm; and
// what security costs.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>

#include "common/account.hpp"
#include "common/local.hpp"
#include "common/options.hpp"
#include "common/report.hpp"
#include "common/secure.hpp"
#include "common/slurm.hpp"

namespace tutti::bench {
namespace {

using nlohmann::json;

constexpr int nodes = 16;
constexpr int gpus = 8;
// At a time: command lines, or connections that stay open.
constexpr int clients = 4;
constexpr const char* by_commands = "4 tutti run | sbatch";
constexpr const char* by_connections = "4 connections (API)";
constexpr const char* no_api_peer = "no peer: Slurm's REST daemon is not part of this set-up";

// How often each thing is done. Each worker submits its share, so they are multiples of `clients`.
struct Counts {
  int launches = 20;
  int secure_launches = 200;
  int jobs = 1000;
  int command_submits = 600;
  int api_submits = 8000;
  int kills = 3;
  int idle_seconds = 10;
  int finished_jobs = 100'000;
};
constexpr Counts quick_counts{.launches = 3,
                              .secure_launches = 5,
                              .jobs = 100,
                              .command_submits = 40,
                              .api_submits = 400,
                              .kills = 1,
                              .idle_seconds = 2,
                              .finished_jobs = 20'000};

struct Bench {
  Counts counts;
  std::string before;  // an earlier program, "" if none is given
  Report report{"Slurm"};
  std::unique_ptr<SlurmCluster> slurm;  // null where it cannot be measured
};

Result<std::unique_ptr<LocalCluster>> start_tutti() { return LocalCluster::start(nodes, gpus); }

// ---- gang: command to exit

Result<> measure_gang(Bench& bench, const LocalCluster& tutti, int gang_nodes, double ratio_max) {
  const std::string size = std::to_string(gang_nodes);
  const std::string devices = std::to_string(gpus);
  auto ours = median_command_ms(LocalCluster::command({"run", "--nodes", size, "--ranks", size,
                                                       "--gpus-per-rank", devices, "--", "true"}),
                                tutti.env(), bench.counts.launches);
  if (!ours) return std::move(ours).error();
  Row row{.name = "gang_" + size + "_nodes",
          .what = "gang of true on " + size + (gang_nodes == 1 ? " node" : " nodes") + ", command to exit",
          .unit = "ms",
          .tutti = *ours,
          .peer = {},
          .bar = Bar{Bar::Kind::ratio_at_most, ratio_max},
          .note = ""};
  if (bench.slurm) {
    auto theirs = median_command_ms({"srun", "-N", size, "--gres=gpu:" + devices, "true"}, bench.slurm->env(),
                                    bench.counts.launches);
    if (!theirs) return std::move(theirs).error();
    row.peer = *theirs;
  }
  bench.report.add(std::move(row));
  return {};
}

Result<> measure_gangs(Bench& bench) {
  auto tutti = start_tutti();
  if (!tutti) return std::move(tutti).error();
  if (auto done = measure_gang(bench, **tutti, nodes, 0.4); !done) return done;
  return measure_gang(bench, **tutti, 1, 0.7);
}

// ---- secure: the same gangs with all that keeps people apart, beside none of it

constexpr double secure_ratio_max = 1.3;

// Of one kind of cluster.
struct Kind {
  std::string name;
  std::string what;
  const Environment* env = nullptr;  // null: it cannot be measured here
  std::string why = {};              // then
  bool has_bar = true;
};
// Beside which they are: without any of it, of this build or of an earlier one.
struct Plain {
  const Environment& env;
  std::string program;  // "": that of this build
  const char* name() const { return program.empty() ? "plain" : "before"; }
};

std::vector<std::string> gang_command(int gang_nodes, const std::string& program = "") {
  const std::string size = std::to_string(gang_nodes);
  return LocalCluster::command({"run", "--workdir", "/", "--nodes", size, "--ranks", size, "--gpus-per-rank",
                                std::to_string(gpus), "--", "true"},
                               program);
}

void add_secure_rows(Report& report, const Kind& kind, int gang_nodes, const std::vector<double>* ours,
                     const std::vector<double>& plain, const char* peer) {
  const std::string size = std::to_string(gang_nodes);
  const std::string what = "true on " + size + (gang_nodes == 1 ? " node, " : " nodes, ") + kind.what;
  Row middle{
      .name = kind.name + "_" + size + "_nodes",
      .what = what,
      .unit = "ms",
      .tutti = {},
      .peer = median(plain),
      .peer_name = peer,
      .bar = kind.has_bar ? std::optional(Bar{Bar::Kind::ratio_at_most, secure_ratio_max}) : std::nullopt,
      .note = kind.why};
  Row slowest{.name = middle.name + "_p99",
              .what = "  of a hundred the slowest but one",
              .unit = "ms",
              .tutti = {},
              .peer = percentile_99(plain),
              .peer_name = peer,
              .bar = {},
              .note = ""};
  if (ours != nullptr) {
    middle.tutti = median(*ours);
    slowest.tutti = percentile_99(*ours);
  }
  report.add(std::move(middle));
  if (ours != nullptr) report.add(std::move(slowest));
}

// All kinds in turns, the plain one first.
Result<> measure_secure_gang(Bench& bench, const Plain& plain, const std::vector<Kind>& kinds,
                             int gang_nodes) {
  const auto command = gang_command(gang_nodes);
  const auto peer = gang_command(gang_nodes, plain.program);
  std::vector<Measurement> turns{[&] { return command_ms(peer, plain.env); }};
  for (const Kind& kind : kinds)
    if (kind.env != nullptr) turns.push_back([&] { return command_ms(command, *kind.env); });
  if (auto warm = measure_in_turns(turns, 2); !warm) return std::move(warm).error();
  const auto times = measure_in_turns(turns, bench.counts.secure_launches);
  if (!times) return times.error();
  std::size_t at = 0;
  for (const Kind& kind : kinds)
    add_secure_rows(bench.report, kind, gang_nodes, kind.env == nullptr ? nullptr : &times->at(++at),
                    times->front(), plain.name());
  return {};
}

// On one disk, with the same nodes: a plain one, one with TLS, certificates of nodes and a user's token, and
// one that also runs ranks as that user. The audit log is always on.
Result<> measure_secure(Bench& bench) {
  auto account = Account::make();
  const std::string user = account ? (*account)->name() : "tutti-bench";
  auto folder = OpenFolder::make();
  if (!folder) return std::move(folder).error();
  const auto start_secure = [&](const std::string& name, bool runs_as_user) {
    return SecureCluster::start({.folder = (*folder)->path() + "/" + name,
                                 .nodes = nodes,
                                 .gpus = gpus,
                                 .user = user,
                                 .runs_as_user = runs_as_user});
  };
  auto plain = LocalCluster::start(nodes, gpus, (*folder)->path() + "/plain");
  if (!plain) return std::move(plain).error();
  auto secure = start_secure("secure", false);
  if (!secure) return std::move(secure).error();
  std::vector<Kind> kinds{{"secure", "mTLS, a user's token, audit", &(*secure)->env()},
                          {"isolated", "and ranks as the user", nullptr}};
  std::unique_ptr<SecureCluster> isolated;
  if (account) {
    auto started = start_secure("isolated", true);
    if (!started) return std::move(started).error();
    isolated = std::move(*started);
    kinds.back().env = &isolated->env();
  } else {
    kinds.back().why = "not measured: " + account.error().text();
  }
  std::unique_ptr<LocalCluster> before;
  if (!bench.before.empty()) {
    auto started = LocalCluster::start(nodes, gpus, (*folder)->path() + "/before", bench.before);
    if (!started) return std::move(started).error();
    before = std::move(*started);
    kinds.push_back({.name = "plain", .what = "none of it", .env = &(*plain)->env(), .has_bar = false});
  }
  const Plain peer{before ? before->env() : (*plain)->env(), bench.before};
  std::printf("of each kind of cluster %d launches, in turns\n", bench.counts.secure_launches);
  if (auto done = measure_secure_gang(bench, peer, kinds, 1); !done) return done;
  return measure_secure_gang(bench, peer, kinds, nodes);
}

// ---- jobs: first submit to last end

// Submits `count` jobs over several connections, one job a request.
Result<> submit_over_api(const LocalCluster& tutti, int count, const json& job) {
  const json jobs = json::array({job});
  return in_parallel(clients, [&](int) -> Result<> {
    Api api = tutti.make_api();
    for (int at = 0; at < count / clients; ++at) {
      if (auto submitted = api.submit(jobs); !submitted) return std::move(submitted).error();
    }
    return {};
  });
}

Result<> wait_until_finished(Api& api, int count) {
  return wait_until("the jobs end", 120s, 5ms, [&]() -> Result<bool> {
    auto status = api.get("status");
    if (!status) return std::move(status).error();
    return status->value("jobs_finished", 0) >= count;
  });
}

Result<> check_all_succeeded(Api& api, int count) {
  auto page = api.get("jobs?all=1&limit=" + std::to_string(count));
  if (!page) return std::move(page).error();
  int succeeded = 0;
  for (const auto& job : (*page)["jobs"]) succeeded += job.value("state", "") == "succeeded" ? 1 : 0;
  if (succeeded == count) return {};
  return failed(std::to_string(succeeded) + " of " + std::to_string(count) + " jobs succeeded");
}

// `tutti run --detach FLAGS -- true`, several at a time, as a shell would start them.
Result<> submit_by_command(const LocalCluster& tutti, int count, const std::vector<std::string>& flags) {
  std::vector<std::string> words{"run", "--detach", "--", "true"};
  words.insert(words.begin() + 2, flags.begin(), flags.end());
  return in_parallel(clients, [&](int) -> Result<> {
    for (int at = 0; at < count / clients; ++at) {
      if (auto submitted = tutti.run(words); !submitted) return std::move(submitted).error();
    }
    return {};
  });
}

// Jobs that hold one of the 128 GPUs each, so that most of them have to wait for room.
Result<double> tutti_jobs_per_second(int count, const std::function<Result<>(const LocalCluster&)>& submit) {
  auto tutti = start_tutti();
  if (!tutti) return std::move(tutti).error();
  Api api = (*tutti)->make_api();
  const auto start = Clock::now();
  if (auto submitted = submit(**tutti); !submitted) return std::move(submitted).error();
  if (auto ended = wait_until_finished(api, count); !ended) return std::move(ended).error();
  const double seconds = seconds_since(start);
  if (auto checked = check_all_succeeded(api, count); !checked) return std::move(checked).error();
  return count / seconds;
}

Result<> sbatch_in_parallel(const SlurmCluster& slurm, int count, const std::vector<std::string>& flags) {
  std::vector<std::string> words{"sbatch", "-o", "/dev/null", "--wrap", "true"};
  words.insert(words.begin() + 1, flags.begin(), flags.end());
  return in_parallel(clients, [&](int) -> Result<> {
    for (int at = 0; at < count / clients; ++at) {
      if (auto submitted = slurm.run(words); !submitted) return std::move(submitted).error();
    }
    return {};
  });
}

Result<> wait_until_empty(const SlurmCluster& slurm) {
  return wait_until("Slurm's jobs end", 180s, 200ms, [&]() -> Result<bool> {
    auto left = slurm.unfinished();
    if (!left) return std::move(left).error();
    return *left == 0;
  });
}

// The same there: one GPU each, and one core, which is the least that Slurm can give.
Result<double> slurm_jobs_per_second(const SlurmCluster& slurm, int count) {
  const auto start = Clock::now();
  if (auto submitted = sbatch_in_parallel(slurm, count, {"-n1", "--gres=gpu:1"}); !submitted)
    return std::move(submitted).error();
  if (auto ended = wait_until_empty(slurm); !ended) return std::move(ended).error();
  return count / seconds_since(start);
}

Result<> measure_jobs(Bench& bench) {
  const int count = bench.counts.jobs;
  const std::string jobs = std::to_string(count) + " jobs to their end, ";
  auto by_command = tutti_jobs_per_second(count, [&](const LocalCluster& tutti) {
    return submit_by_command(tutti, count, {"--gpus", "1"});
  });
  if (!by_command) return std::move(by_command).error();
  Row row{.name = "jobs_per_second_by_command",
          .what = jobs + by_commands,
          .unit = "jobs/s",
          .tutti = *by_command,
          .peer = {},
          .bar = Bar{Bar::Kind::ratio_at_least, 4},
          .note = ""};
  if (bench.slurm) {
    auto theirs = slurm_jobs_per_second(*bench.slurm, count);
    if (!theirs) return std::move(theirs).error();
    row.peer = *theirs;
  }
  bench.report.add(std::move(row));

  const json job{{"command", {"true"}}, {"workdir", "/"}, {"shape", {{"ranks", 1}, {"gpu_share", 1000}}}};
  auto over_api = tutti_jobs_per_second(
      count, [&](const LocalCluster& tutti) { return submit_over_api(tutti, count, job); });
  if (!over_api) return std::move(over_api).error();
  bench.report.add({.name = "jobs_per_second_over_api",
                    .what = jobs + by_connections,
                    .unit = "jobs/s",
                    .tutti = *over_api,
                    .peer = {},
                    .bar = {},
                    .note = no_api_peer});
  return {};
}

// ---- submits: how many are kept for good in a second

// What cannot start while the job with this id runs.
json waiting_job(const std::string& blocker) {
  return {{"command", {"true"}},
          {"workdir", "/"},
          {"shape", {{"ranks", 1}}},
          {"after", {{{"job", blocker}, {"success", true}}}}};
}

Result<std::string> submit_blocker(Api& api) {
  return api.submit(
      json::array({{{"command", {"sleep", "1000"}}, {"workdir", "/"}, {"shape", {{"ranks", 1}}}}}));
}

Result<double> command_submits_per_second(const LocalCluster& tutti, const std::string& blocker, int count) {
  const auto start = Clock::now();
  if (auto submitted = submit_by_command(tutti, count, {"--after", blocker}); !submitted)
    return std::move(submitted).error();
  return count / seconds_since(start);
}

Result<double> api_submits_per_second(const LocalCluster& tutti, const std::string& blocker, int count) {
  const auto start = Clock::now();
  if (auto submitted = submit_over_api(tutti, count, waiting_job(blocker)); !submitted)
    return std::move(submitted).error();
  return count / seconds_since(start);
}

Result<double> slurm_submits_per_second(const SlurmCluster& slurm, int count) {
  const auto start = Clock::now();
  if (auto submitted = sbatch_in_parallel(slurm, count, {"--hold"}); !submitted)
    return std::move(submitted).error();
  const double rate = count / seconds_since(start);
  if (auto cancelled = slurm.run({"scancel", "-u", "root"}); !cancelled) return std::move(cancelled).error();
  if (auto ended = wait_until_empty(slurm); !ended) return std::move(ended).error();
  return rate;
}

Result<> measure_submits(Bench& bench) {
  auto tutti = start_tutti();
  if (!tutti) return std::move(tutti).error();
  Api api = (*tutti)->make_api();
  auto blocker = submit_blocker(api);
  if (!blocker) return std::move(blocker).error();
  auto by_command = command_submits_per_second(**tutti, *blocker, bench.counts.command_submits);
  if (!by_command) return std::move(by_command).error();
  auto by_api = api_submits_per_second(**tutti, *blocker, bench.counts.api_submits);
  if (!by_api) return std::move(by_api).error();
  std::optional<double> theirs;
  if (bench.slurm) {
    auto rate = slurm_submits_per_second(*bench.slurm, bench.counts.command_submits);
    if (!rate) return std::move(rate).error();
    theirs = *rate;
  }
  bench.report.add({.name = "submits_by_command",
                    .what = std::string("durable submits, ") + by_commands,
                    .unit = "/s",
                    .tutti = *by_command,
                    .peer = theirs,
                    .bar = Bar{Bar::Kind::ratio_at_least, 1.5},
                    .note = ""});
  bench.report.add({.name = "submits_over_api",
                    .what = std::string("durable submits, ") + by_connections,
                    .unit = "/s",
                    .tutti = *by_api,
                    .peer = theirs,
                    .bar = Bar{Bar::Kind::ratio_at_least, 8},
                    .note = "beside sbatch: Slurm's REST daemon is not part of this set-up"});
  return {};
}

// ---- failover: a node is killed, its gang runs elsewhere

Result<json> wait_for_attempt(Api& api, const std::string& job, int attempt) {
  json view;
  auto running = wait_until(
      "job " + job + " runs as attempt " + std::to_string(attempt), 60s, 5ms, [&]() -> Result<bool> {
        auto answer = api.get("jobs/" + job);
        if (!answer) return std::move(answer).error();
        view = std::move(*answer);
        if (view.contains("exit_code")) return failed("it has ended: " + view.value("reason", ""));
        return view.value("state", "") == "running" && view.value("attempt", -1) == attempt;
      });
  if (!running) return std::move(running).error();
  return view;
}

Result<> check_log(const LocalCluster& tutti, const std::string& job, const std::string& line) {
  return wait_until("the log says '" + line + "'", 10s, 50ms, [&]() -> Result<bool> {
    auto log = tutti.run({"logs", job});
    if (!log) return std::move(log).error();
    return log->find(line) != std::string::npos;
  });
}

Result<double> kill_and_wait(const LocalCluster& tutti, Api& api) {
  const json shape{{"ranks", 2}, {"nodes", 2}, {"gpu_share", gpus * 1000}};
  auto job =
      api.submit(json::array({{{"command", {"sh", "-c", "echo attempt $TUTTI_ATTEMPT; exec sleep 1000"}},
                               {"workdir", "/"},
                               {"shape", shape},
                               {"grace_ms", 10'000},
                               {"restarts", 3}}}));
  if (!job) return std::move(job).error();
  auto before = wait_for_attempt(api, *job, 0);
  if (!before) return std::move(before).error();
  const auto victim = before->at("nodes").back().get<std::string>();
  const auto start = Clock::now();
  if (auto killed = tutti.run({"local", "kill-node", victim}); !killed) return std::move(killed).error();
  auto after = wait_for_attempt(api, *job, 1);
  if (!after) return std::move(after).error();
  const double seconds = seconds_since(start);
  if (auto checked = check_log(tutti, *job, "attempt 1"); !checked) return std::move(checked).error();
  if (auto cancelled = api.post("jobs/" + *job + "/cancel"); !cancelled) return std::move(cancelled).error();
  if (auto back = tutti.run({"local", "start-node", victim}); !back) return std::move(back).error();
  return seconds;
}

Result<> measure_failover(Bench& bench) {
  auto tutti = start_tutti();
  if (!tutti) return std::move(tutti).error();
  Api api = (*tutti)->make_api();
  std::vector<double> times;
  for (int kill = 0; kill < bench.counts.kills; ++kill) {
    auto seconds = kill_and_wait(**tutti, api);
    if (!seconds) return std::move(seconds).error();
    times.push_back(*seconds);
  }
  bench.report.add({.name = "failover",
                    .what = "node killed, its 2-node gang runs, worst of " + std::to_string(times.size()),
                    .unit = "s",
                    .tutti = *std::max_element(times.begin(), times.end()),
                    .peer = {},
                    .bar = Bar{Bar::Kind::value_at_most, 5},
                    .note = "Slurm is not measured in this run"});
  return {};
}

// ---- idle: what the controllers use when nothing happens

struct Idle {
  double resident_mib = 0;
  double cpu_seconds_per_minute = 0;
};

Result<Idle> idle_between(const Usage& before, Result<Usage> after, double seconds) {
  if (!after) return std::move(after).error();
  return Idle{after->resident_mib, (after->cpu_seconds - before.cpu_seconds) * 60 / seconds};
}

Result<> measure_idle(Bench& bench) {
  auto tutti = start_tutti();
  if (!tutti) return std::move(tutti).error();
  const pid_t ours_pid = (*tutti)->controller_pid();
  const pid_t theirs_pid = bench.slurm ? bench.slurm->controller_pid() : 0;
  std::this_thread::sleep_for(1s);  // what the start left to do is no part of being idle
  auto ours_before = usage_of(ours_pid);
  if (!ours_before) return std::move(ours_before).error();
  const Usage theirs_before = theirs_pid > 0 ? usage_of(theirs_pid).value_or({}) : Usage{};
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(bench.counts.idle_seconds));
  auto ours = idle_between(*ours_before, usage_of(ours_pid), seconds_since(start));
  if (!ours) return std::move(ours).error();
  Row memory{.name = "idle_memory",
             .what = "controller with 16 idle nodes, resident memory",
             .unit = "MiB",
             .tutti = ours->resident_mib,
             .peer = {},
             .bar = {},
             .note = ""};
  Row processor{.name = "idle_cpu",
                .what = "controller with 16 idle nodes, CPU a minute",
                .unit = "s",
                .tutti = ours->cpu_seconds_per_minute,
                .peer = {},
                .bar = {},
                .note = ""};
  if (theirs_pid > 0) {
    auto theirs = idle_between(theirs_before, usage_of(theirs_pid), seconds_since(start));
    if (!theirs) return std::move(theirs).error();
    memory.peer = theirs->resident_mib;
    processor.peer = theirs->cpu_seconds_per_minute;
  }
  bench.report.add(std::move(memory));
  bench.report.add(std::move(processor));
  return {};
}

// ---- list: one page of a long history

constexpr int array_elements_max = 10'000;
constexpr Duration fill_time_max = 120s;

// One array that waits for a job which is then cancelled: all of it has ended with two small requests more.
Result<> add_finished_jobs(Api& api, int count) {
  auto blocker = submit_blocker(api);
  if (!blocker) return std::move(blocker).error();
  json jobs = json::array();
  json element = waiting_job(*blocker);
  for (int index = 0; index < count; ++index) {
    element["array"] = {{"index", index}, {"count", count}};
    jobs.push_back(element);
  }
  if (auto submitted = api.submit(jobs); !submitted) return std::move(submitted).error();
  if (auto cancelled = api.post("jobs/" + *blocker + "/cancel"); !cancelled)
    return std::move(cancelled).error();
  return {};
}

// How many there are in the end: less than asked for if it takes too long.
Result<int> fill_history(Api& api, int count) {
  const auto start = Clock::now();
  int finished = 0;
  while (finished < count && Clock::now() - start < fill_time_max) {
    const int elements = std::min(array_elements_max, count - finished);
    if (auto added = add_finished_jobs(api, elements); !added) return std::move(added).error();
    if (auto ended = wait_until_finished(api, finished + elements); !ended) return std::move(ended).error();
    finished += elements;
  }
  return finished;
}

Result<> measure_list(Bench& bench) {
  auto tutti = start_tutti();
  if (!tutti) return std::move(tutti).error();
  Api api = (*tutti)->make_api();
  const auto start = Clock::now();
  auto finished = fill_history(api, bench.counts.finished_jobs);
  if (!finished) return std::move(finished).error();
  const int fill_seconds = static_cast<int>(seconds_since(start));
  auto ours =
      median_command_ms(LocalCluster::command({"jobs", "--all"}), (*tutti)->env(), bench.counts.launches);
  if (!ours) return std::move(ours).error();
  bench.report.add({.name = "list",
                    .what = "tutti jobs --all, one page of " + std::to_string(*finished) + " jobs",
                    .unit = "ms",
                    .tutti = *ours,
                    .peer = {},
                    .bar = Bar{Bar::Kind::value_at_most, 50},
                    .note = "filled in " + std::to_string(fill_seconds) + " s"});
  return {};
}

// ---- the program

struct Part {
  const char* name;
  bool needs_slurm;
  Result<> (*measure)(Bench&);
};
constexpr std::array<Part, 7> parts{{{"gang", true, measure_gangs},
                                     {"secure", false, measure_secure},
                                     {"jobs", true, measure_jobs},
                                     {"submits", true, measure_submits},
                                     {"failover", false, measure_failover},
                                     {"idle", true, measure_idle},
                                     {"list", false, measure_list}}};

Result<> measure(Bench& bench, const Options& options) {
  const bool wants_slurm = std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.needs_slurm && options.wants(part.name);
  });
  if (wants_slurm) {
    auto slurm = SlurmCluster::start(nodes, gpus);
    if (slurm) {
      bench.slurm = std::move(*slurm);
    } else {
      std::printf("Slurm: %s\n", slurm.error().text().c_str());
    }
  }
  std::printf("%d local nodes of %d fake GPUs, medians of %d\n", nodes, gpus, bench.counts.launches);
  bench.report.print_head();
  for (const Part& part : parts) {
    if (!options.wants(part.name)) continue;
    if (auto done = part.measure(bench); !done) return std::move(done).error().within(part.name);
  }
  return {};
}

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, names_of(parts));
  if (!options) return std::move(options).error();
  catch_interrupts();
  Bench bench{
      .counts = options->quick ? quick_counts : Counts{}, .before = options->before, .slurm = nullptr};
  if (auto done = measure(bench, *options); !done) return done;
  return bench.report.end(*options);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  return tutti::bench::exit_code("bench_launch", tutti::bench::run({words + 1, words + count}));
}
