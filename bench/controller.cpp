// bench/controller: a real controller with its sockets and its store, 2,000 agents and 100,000 queued jobs.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/text.hpp"
#include "common/fleet.hpp"
#include "common/local.hpp"
#include "common/options.hpp"
#include "common/report.hpp"

namespace tutti::bench {
namespace {

using nlohmann::json;

constexpr int queues = 20;
constexpr int users = 200;
constexpr int watchers = 3;
constexpr int clients = 8;

struct Counts {
  int agents = 2'000;
  int queued = 100'000;
  int shapes = 2'000;
  int submits = 10'000;  // of those, one by one
  int array = 10'000;
  int ranks = 100'000;
};
constexpr Counts quick_counts{
    .agents = 200, .queued = 4'000, .shapes = 200, .submits = 800, .array = 1'000, .ranks = 10'000};

// A controller of its own in a scratch folder, ended with the object.
class Controller {
 public:
  Result<> start() {
    const std::string data = folder_.path() + "/controller";
    if (auto made = run_command(LocalCluster::command({"controller", "init", "--data", data}), {}); !made)
      return std::move(made).error();
    auto port = free_port();
    if (!port) return std::move(port).error();
    const std::string address = "127.0.0.1:" + std::to_string(*port);
    auto target = net::parse_target(address);
    if (!target) return std::move(target).error();
    target_ = *target;
    admin_ = trim(support::read_text(data + "/admin.token"));
    join_ = trim(support::read_text(data + "/join.token"));
    process_.emplace(LocalCluster::command({"controller", "--data", data, "--listen", address,
                                            "--requests-per-second", "1000000"}),
                     folder_.path() + "/output");
    return wait_until("the controller answers", 30s, 20ms,
                      [this]() -> Result<bool> { return make_api().get("status").ok(); });
  }

  Api make_api() const { return {target_, admin_}; }
  net::Client make_client() const { return {target_, admin_}; }
  FleetOptions fleet(int agents) const { return {.controller = target_, .token = join_, .agents = agents}; }
  Result<double> resident_mib() const {
    auto usage = usage_of(process_->pid());
    if (!usage) return std::move(usage).error();
    return usage->resident_mib;
  }

 private:
  support::TempFolder folder_;
  net::Target target_;
  std::string admin_;
  std::string join_;
  std::optional<support::Process> process_;
};

// Somebody who reads every event, and counts them.
class Watcher {
 public:
  explicit Watcher(const Controller& controller)
      : thread_([this, client = controller.make_client()]() mutable {
          const auto on_event = [this](std::string_view, std::string_view) { return ++events_, !stop_; };
          static_cast<void>(client.events("/api/v1/events", on_event, [this] { return !stop_; }));
        }) {}
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher() {
    stop_ = true;
    thread_.join();
  }
  std::uint64_t events() const { return events_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> events_{0};
  std::thread thread_;
};

// Asks for a page of jobs again and again: how long the slowest answer took.
class Reader {
 public:
  explicit Reader(const Controller& controller)
      : thread_([this, api = controller.make_api()]() mutable {
          while (!stop_) {
            const auto asked = Clock::now();
            if (!api.get("jobs")) break;
            slowest_ms_ = std::max(slowest_ms_.load(), seconds_since(asked) * 1e3);
          }
        }) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { end(); }
  double end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return slowest_ms_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<double> slowest_ms_{0};
  std::thread thread_;
};

struct Bench {
  Counts counts;
  Report report{"peer"};
  Controller controller;
  std::unique_ptr<Fleet> fleet;
  std::vector<std::unique_ptr<Watcher>> watchers;
  double latest_answer_ms = 0;

  void add(const std::string& name, const std::string& what, const std::string& unit, double value,
           std::optional<Bar> bar, const std::string& note = "") {
    report.add(
        {.name = name, .what = what, .unit = unit, .tutti = value, .peer = {}, .bar = bar, .note = note});
  }
  // What has gone by since the last call, for the note of a row.
  std::string heartbeats() {
    const double latest = fleet->take_latest_answer_ms();
    latest_answer_ms = std::max(latest_answer_ms, latest);
    return "latest heartbeat meanwhile answered after " + std::to_string(static_cast<int>(latest)) + " ms";
  }
};

std::string queue_of(int number) { return "team" + std::to_string(number % queues); }
std::string user_of(int number) { return "user" + std::to_string(number % users); }

// One of so many: what it needs is never free while the blocker runs.
json waiting_job(int number, int shapes) {
  const int shape = number % shapes;
  return {
      {"command", {"true"}},
      {"workdir", "/"},
      {"user", user_of(number)},
      {"queue", queue_of(number)},
      {"shape",
       {{"ranks", 1 + shape % 50}, {"gpu_share", 1000 * (1 + shape / 50 % 8)}, {"cpus", 1 + shape / 400}}}};
}

// ---- a full cluster

Result<> join_all(Bench& bench) {
  bench.fleet = std::make_unique<Fleet>(bench.controller.fleet(bench.counts.agents));
  Api api = bench.controller.make_api();
  return wait_until("the agents join", 120s, 50ms, [&]() -> Result<bool> {
    auto status = api.get("status");
    if (!status) return std::move(status).error();
    return status->value("nodes_ready", 0) == bench.counts.agents;
  });
}

Result<> make_queues(Bench& bench) {
  net::Client client = bench.controller.make_client();
  for (int queue = 0; queue < queues; ++queue) {
    auto made = client.request("PUT", "/api/v1/queues/" + queue_of(queue), R"({"weight":1})");
    if (!made) return std::move(made).error();
    if (made->status >= 400) return failed(made->body).within("queue " + queue_of(queue));
  }
  return {};
}

// One gang that has every GPU.
Result<> block(Bench& bench) {
  Api api = bench.controller.make_api();
  const int agents = bench.counts.agents;
  auto blocker =
      api.submit(json::array({{{"command", {"sleep", "1000000"}},
                               {"workdir", "/"},
                               {"shape", {{"ranks", agents}, {"nodes", agents}, {"gpu_share", 8000}}}}}));
  if (!blocker) return std::move(blocker).error();
  return wait_until("the blocker runs", 60s, 20ms, [&]() -> Result<bool> {
    auto job = api.get("jobs/" + *blocker);
    if (!job) return std::move(job).error();
    return job->value("state", "") == "running";
  });
}

// All but those that are submitted one by one, as arrays of one shape each.
Result<> fill(Bench& bench) {
  const int arrays = bench.counts.shapes;
  const int each = (bench.counts.queued - bench.counts.submits) / arrays;
  return in_parallel(clients, [&](int worker) -> Result<> {
    Api api = bench.controller.make_api();
    for (int array = worker; array < arrays; array += clients) {
      json jobs = json::array();
      json element = waiting_job(array, bench.counts.shapes);
      for (int index = 0; index < each; ++index) {
        element["array"] = {{"index", index}, {"count", each}};
        jobs.push_back(element);
      }
      if (auto submitted = api.submit(jobs); !submitted) return std::move(submitted).error();
    }
    return {};
  });
}

// ---- what is measured

Result<> measure_submits(Bench& bench) {
  const int each = bench.counts.submits / clients;
  const auto start = Clock::now();
  auto done = in_parallel(clients, [&](int worker) -> Result<> {
    Api api = bench.controller.make_api();
    for (int at = 0; at < each; ++at) {
      const json job = waiting_job(worker * each + at, bench.counts.shapes);
      if (auto submitted = api.submit(json::array({job})); !submitted) return std::move(submitted).error();
    }
    return {};
  });
  if (!done) return done;
  bench.add("submits", "submits into a queue of " + std::to_string(bench.counts.queued), "jobs/s",
            bench.counts.submits / seconds_since(start), Bar{Bar::Kind::value_at_least, 500},
            bench.heartbeats());
  return {};
}

Result<int> finished(Api& api) {
  auto status = api.get("status");
  if (!status) return std::move(status).error();
  return status->value("jobs_finished", 0);
}

Result<> measure_failures(Bench& bench) {
  Api api = bench.controller.make_api();
  const auto before = finished(api);
  if (!before) return before.error();
  json element{
      {"command", {"false"}}, {"workdir", "/"}, {"priority", 100}, {"shape", {{"ranks", 1}, {"cpus", 1}}}};
  json jobs = json::array();
  for (int index = 0; index < bench.counts.array; ++index) {
    element["array"] = {{"index", index}, {"count", bench.counts.array}};
    jobs.push_back(element);
  }
  const auto start = Clock::now();
  if (auto submitted = api.submit(jobs); !submitted) return std::move(submitted).error();
  auto ended = wait_until("the array has failed", 120s, 50ms, [&]() -> Result<bool> {
    auto now = finished(api);
    if (!now) return std::move(now).error();
    return *now - *before >= bench.counts.array;
  });
  if (!ended) return ended;
  bench.add("failures", "array of " + std::to_string(bench.counts.array) + " that fails at once", "s",
            seconds_since(start), Bar{Bar::Kind::value_at_most, 10}, bench.heartbeats());
  return {};
}

// From the request until every agent knows its ranks, and until all of them have ended. The bars are for a
// cluster that has nothing else to do.
Result<> measure_ranks(Bench& bench, bool queue_full) {
  Api api = bench.controller.make_api();
  const auto wanted = bench.fleet->starts() + static_cast<std::uint64_t>(bench.counts.ranks);
  const int each = bench.counts.ranks / bench.counts.agents;
  const std::string suffix = queue_full ? "_queue_full" : "";
  const std::string ranks = std::to_string(bench.counts.ranks) + " ranks ";
  const auto bar = [&](double limit) {
    return queue_full ? std::optional<Bar>() : Bar{Bar::Kind::value_at_most, limit};
  };
  const json gang{{"command", {"true"}},
                  {"workdir", "/"},
                  {"priority", 100},
                  {"shape", {{"ranks", bench.counts.ranks}, {"ranks_per_node", each}}}};
  Reader reader(bench.controller);
  const auto start = Clock::now();
  auto id = api.submit(json::array({gang}));
  if (!id) return std::move(id).error();
  auto told = wait_until("the ranks are described", 120s, 1ms,
                         [&]() -> Result<bool> { return bench.fleet->starts() >= wanted; });
  if (!told) return told;
  const double described_s = seconds_since(start);
  const double described_page_ms = reader.end();
  Reader while_it_ends(bench.controller);
  std::string state;
  auto ended = wait_until("the gang ends", 120s, 20ms, [&]() -> Result<bool> {
    auto job = api.get("jobs?all=1&limit=1");
    if (!job) return std::move(job).error();
    const json& gang_now = (*job)["jobs"][0];
    state = gang_now.value("state", "") + " " + gang_now.value("reason", "");
    if (state.starts_with("failed")) return failed("it failed: " + state);
    return state.starts_with("succeeded");
  });
  if (!ended) return std::move(ended).error().within("the gang is " + state);
  const double ended_s = seconds_since(start);
  bench.add("ranks" + suffix, ranks + "submitted, placed, described", "s", described_s, bar(2),
            queue_full ? "behind " + std::to_string(bench.counts.queued) + " queued jobs" : "");
  bench.add("ranks_page" + suffix, "slowest page of jobs meanwhile", "ms", described_page_ms, bar(50));
  bench.add("ranks_ended" + suffix, ranks + "submitted to ended", "s", ended_s, {},
            "slowest page of jobs meanwhile " + std::to_string(static_cast<int>(while_it_ends.end())) +
                " ms; " + bench.heartbeats());
  return {};
}

Result<> measure(Bench& bench) {
  if (auto started = bench.controller.start(); !started) return started;
  if (auto joined = join_all(bench); !joined) return joined;
  if (auto made = make_queues(bench); !made) return made;
  for (int watcher = 0; watcher < watchers; ++watcher)
    bench.watchers.push_back(std::make_unique<Watcher>(bench.controller));
  bench.report.print_head();
  if (auto done = measure_ranks(bench, false); !done) return done;
  if (auto blocked = block(bench); !blocked) return blocked;
  const auto start = Clock::now();
  if (auto filled = fill(bench); !filled) return filled;
  std::printf("%d agents, %d jobs queued in %d arrays in %.1f s (%s), %d watchers\n", bench.counts.agents,
              bench.counts.queued - bench.counts.submits, bench.counts.shapes, seconds_since(start),
              bench.heartbeats().c_str(), watchers);
  if (auto done = measure_submits(bench); !done) return done;
  if (auto done = measure_failures(bench); !done) return done;
  if (auto done = measure_ranks(bench, true); !done) return done;
  bench.add("heartbeats", "latest answer to a heartbeat in all of this", "ms", bench.latest_answer_ms,
            Bar{Bar::Kind::value_at_most, 500});
  auto resident = bench.controller.resident_mib();
  if (!resident) return std::move(resident).error();
  bench.add("resident", "resident memory of the controller", "MiB", *resident,
            Bar{Bar::Kind::value_at_most, 1536});
  if (bench.fleet->connected() < bench.counts.agents)
    return failed(std::to_string(bench.counts.agents - bench.fleet->connected()) + " agents were cut off");
  std::uint64_t fewest = ~std::uint64_t{0};
  for (const auto& watcher : bench.watchers) fewest = std::min(fewest, watcher->events());
  std::printf("each watcher saw at least %llu events\n", static_cast<unsigned long long>(fewest));
  return {};
}

Result<> run(const std::vector<std::string>& words) {
  auto options = parse_options(words, {});
  if (!options) return std::move(options).error();
  catch_interrupts();
  Bench bench;
  if (options->quick) bench.counts = quick_counts;
  if (auto done = measure(bench); !done) return done;
  return bench.report.end(*options);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  return tutti::bench::exit_code("bench_controller", tutti::bench::run({words + 1, words + count}));
}
