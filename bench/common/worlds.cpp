#include "common/worlds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>

#include "base/clock/clock.hpp"
#include "control/driver/turns.hpp"
#include "control/store/memory/memory_store.hpp"
#include "control/wire/messages.hpp"
#include "lab/sim/campaign.hpp"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// ---- seeds: chaos until many worlds have kept every promise

Result<> measure_worlds(Report& report, bool quick) {
  const sim::Campaign campaign{.first = 1, .last = quick ? 50U : 10'000U};
  const auto start = Clock::now();
  const sim::Tally tally = sim::run_campaign(campaign, [](const sim::Tally&, std::uint64_t) { return true; });
  const double seconds = seconds_since(start);
  report.add({.name = "chaos_violations",
              .what = "broken promises in " + std::to_string(tally.seeds) + " worlds with " +
                      std::to_string(tally.faults) + " faults",
              .unit = "",
              .tutti = static_cast<double>(tally.broken.size()),
              .peer = {},
              .bar = Bar{Bar::Kind::value_at_most, 0},
              .note = tally.broken.empty()
                          ? std::to_string(tally.twice) + " run twice, byte for byte the same"
                          : "seed " + std::to_string(tally.broken.front().seed) + ": " +
                                tally.broken.front().violation});
  report.add({.name = "chaos_seeds_per_second",
              .what = "worlds in a second, " +
                      std::to_string(static_cast<std::uint64_t>(tally.time / 1s) / tally.seeds) +
                      " virtual seconds each",
              .unit = "/s",
              .tutti = static_cast<double>(tally.seeds) / seconds,
              .peer = {},
              .bar = {},
              .note = ""});
  return {};
}

// ---- agents: one controller and a fleet, on virtual time

namespace {

constexpr int fleet_nodes = 27'500;
constexpr int node_gpus = 8;
constexpr int ends_per_second = 1000;
constexpr Duration job_time = 10s;
constexpr Duration slot = 10ms;  // virtual time between two turns
constexpr Duration measured_time = 30s;
constexpr double patience_seconds = 60;  // real, after which the ratio is taken as it is

// A store in memory that knows how long its commits took.
class TimedStore final : public store::Store {
 public:
  Result<std::uint64_t> read(const Each& each) override { return store_.read(each); }
  store::CommitResult commit(std::uint64_t revision, std::span<const store::Write> writes) override {
    const auto start = Clock::now();
    auto done = store_.commit(revision, writes);
    seconds += seconds_since(start);
    return done;
  }

  double seconds = 0;

 private:
  store::MemoryStore store_;
};

// The real controller's turns, and agents that answer at once: each beats every second, and reports the start
// and the end of what it is told to run.
class Fleet {
 public:
  Fleet() : turns_(store_, [this] { return clock(); }) {}

  Result<> join() {
    if (auto loaded = turns_.load(); !loaded) return loaded;
    for (int node = 0; node < fleet_nodes; ++node) {
      cluster::Hello hello{name_of(node),
                           "site/pod" + std::to_string(node / 512) + "/rack" + std::to_string(node / 16),
                           "10.0." + std::to_string(node / 250) + "." + std::to_string(node % 250),
                           1,
                           {},
                           {}};
      for (int gpu = 0; gpu < node_gpus; ++gpu) hello.inventory.devices.push_back({"H100", gib(80), "uuid"});
      hello.inventory.cpus = 128;
      hello.inventory.memory = gib(1024);
      happen(std::move(hello));
    }
    turn();
    return {};
  }

  // One slot of virtual time: what agents and users say in it, and a turn.
  void step() {
    now_ += slot;
    ++slots_;
    const int beats = fleet_nodes / static_cast<int>(1s / slot);
    for (int beat = 0; beat < beats; ++beat) {
      happen(cluster::Heard{name_of(next_beat_)});
      next_beat_ = (next_beat_ + 1) % fleet_nodes;
    }
    while (!ends_.empty() && ends_.front().at <= now_) {
      ends_.front().report.ranks.front().status = {cluster::RankState::exited, 0, ""};
      happen(std::move(ends_.front().report));
      ends_.pop_front();
      ++ended_;
    }
    turn();
  }
  // `count` jobs of one GPU each, one request for each, or one array of all.
  void submit(int count, bool as_array) {
    cluster::JobSpec spec;
    spec.name = "job";
    spec.command = {"true"};
    spec.shape.gpu_share = 1000;
    cluster::Submit all;
    for (int index = 0; index < count; ++index) {
      if (as_array) spec.array = cluster::ArrayPart{{}, index, count, 0};
      all.specs.push_back(spec);
      if (!as_array) happen(std::exchange(all, {}));
    }
    if (as_array) happen(std::move(all));
  }

  std::uint64_t ended() const { return ended_; }
  std::size_t running() const { return ends_.size(); }
  double turn_seconds() const { return turn_seconds_; }
  double pass_seconds() const { return pass_seconds_; }
  double commit_seconds() const { return store_.seconds; }
  void reset_times() { turn_seconds_ = pass_seconds_ = store_.seconds = 0, ended_ = 0; }

 private:
  struct End {
    Instant at;
    cluster::Reported report;
  };

  static std::string name_of(int node) { return "node" + std::to_string(node); }

  void happen(cluster::Event event) { items_.push_back({std::move(event), nullptr, nullptr}); }

  // Virtual time, in which a turn takes as long as it really does: so long passes are put off as they would
  // be.
  Instant clock() {
    const double into_turn = in_turn_ ? seconds_since(turn_began_) : 0;
    // Within a turn it is asked at its beginning, and before and after a pass.
    if (in_turn_) looks_.push_back(into_turn);
    return now_ + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(into_turn));
  }

  void turn() {
    turn_began_ = Clock::now();
    in_turn_ = true;
    looks_.clear();
    auto outcome = turns_.turn(std::exchange(items_, {}), false);
    in_turn_ = false;
    turn_seconds_ += seconds_since(turn_began_);
    if (looks_.size() == 3) pass_seconds_ += looks_[2] - looks_[1];
    for (const auto& message : outcome.delivery.messages) {
      if (message.start) start(message);
    }
  }

  void start(const driver::Delivery::Message& message) {
    const auto decoded = wire::decode_controller_message(message.frame);
    for (const auto& rank : std::get<wire::StartRanks>(*decoded).ranks) {
      cluster::Reported report{message.node, {message.job, message.attempt, rank.rank, {}}};
      report.ranks.front().status.state = cluster::RankState::started;
      ends_.push_back({now_ + job_time, report});
      happen(std::move(report));
    }
  }

  TimedStore store_;
  Instant now_{std::chrono::hours(24)};
  driver::Turns turns_;
  std::vector<driver::Item> items_;
  std::deque<End> ends_;  // in the order of their time, because all take the same
  int next_beat_ = 0;
  std::uint64_t slots_ = 0;
  std::uint64_t ended_ = 0;
  bool in_turn_ = false;
  Clock::time_point turn_began_;
  std::vector<double> looks_;
  double turn_seconds_ = 0;
  double pass_seconds_ = 0;
};

// As many jobs run as end in `job_time`, evenly spread.
void fill(Fleet& fleet, Clock::time_point deadline) {
  const int per_slot = static_cast<int>(ends_per_second * slot / 1s);
  for (Duration time{}; time < job_time; time += slot) {
    fleet.submit(per_slot, true);
    fleet.step();
    if (Clock::now() > deadline) break;
  }
}

}  // namespace

Result<> measure_agents(Report& report, bool quick) {
  Fleet fleet;
  if (auto joined = fleet.join(); !joined) return joined;
  const auto patience = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(quick ? patience_seconds / 10 : patience_seconds));
  fill(fleet, Clock::now() + patience);
  fleet.reset_times();
  const int per_slot = static_cast<int>(ends_per_second * slot / 1s);
  const auto start = Clock::now();
  Duration time{};
  while (time < measured_time && Clock::now() < start + patience) {
    fleet.submit(per_slot, false);
    fleet.step();
    time += slot;
  }
  const double seconds = seconds_since(start);
  const double virtual_seconds = std::chrono::duration<double>(time).count();
  const double steps = fleet.turn_seconds() - fleet.pass_seconds() - fleet.commit_seconds();
  std::array<char, 200> note{};
  std::snprintf(note.data(), note.size(),
                "of %.1f s: %.0f%% passes, %.0f%% commits, %.0f%% events and messages; %zu run, %llu ended",
                seconds, 100 * fleet.pass_seconds() / seconds, 100 * fleet.commit_seconds() / seconds,
                100 * steps / seconds, fleet.running(), static_cast<unsigned long long>(fleet.ended()));
  report.add({.name = "fleet_virtual_seconds_per_second",
              .what = std::to_string(fleet_nodes) + " agents, " + std::to_string(ends_per_second) +
                      " job ends a second",
              .unit = "x",
              .tutti = virtual_seconds / seconds,
              .peer = {},
              .bar = Bar{Bar::Kind::value_at_least, 1},
              .note = note.data()});
  return {};
}

}  // namespace tutti::bench
