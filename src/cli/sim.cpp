// `tutti sim`: the cluster on virtual time, without a single server.
#include <unistd.h>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/clock/clock.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/orderly_end.hpp"
#include "cli/progress_bar.hpp"
#include "cli/sim_replay.hpp"
#include "lab/sim/campaign.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

constexpr std::size_t events_shown = 30;
constexpr std::int64_t minutes_max = 1440;

// A broken assumption (TUTTI_CHECK) ends the program: this says in which world it was.
std::atomic<std::uint64_t> current_seed{0};
void tell_seed(int) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), "in seed %llu\n",
                                   static_cast<unsigned long long>(current_seed.load()));
  static_cast<void>(!::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(length)));
}

// "7" or "1-1000".
Result<> parse_seeds(std::string_view text, sim::Campaign& campaign) {
  const auto parts = split(text, '-');
  const auto first = parse_id_number(parts.front());
  const auto last = parse_id_number(parts.back());
  if (parts.size() > 2 || !first || !last || *first > *last)
    return invalid("'" + std::string(text) + "' is no range of seeds").remedy("such as 1-1000, or 7");
  campaign.first = *first;
  campaign.last = *last;
  return {};
}

class Sim final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word(
        "run|saturate|scale|chaos", what_,
        "a trace of jobs, how full a cluster gets, how fast the scheduler is, or faults against the real "
        "logic of controller and agents");
    replay_.declare(flags);
    const auto set = [this](std::string_view text) -> Result<> {
      if (auto parsed = parse_seeds(text, campaign_); !parsed) return parsed;
      replay_.seed_first = campaign_.first;
      replay_.seed_last = campaign_.last;
      return {};
    };
    flags.add("seeds", "A-B", set,
              "chaos: the worlds to run, each from its seed (default: 1-100); saturate: default 42-51");
    flags.add("seed", "S", set, "chaos: one world, as a failed run names it");
    flags.add("minutes", minutes_, "chaos: virtual minutes of faults in each world (default: 2)",
              {.min = 1, .max = minutes_max});
    flags.add("events", trace_, "chaos: print every event of the first world");
    flags.add("json", replay_.json, "write the results as JSON to this file; - is stdout");
  }

  Result<int> run() override {
    struct Action {
      const char* name;
      Result<int> (Sim::*run)();
    };
    static constexpr std::array<Action, 4> actions{{{"run", &Sim::run_trace},
                                                    {"saturate", &Sim::saturate},
                                                    {"scale", &Sim::scale},
                                                    {"chaos", &Sim::chaos}}};
    std::string names;
    for (const Action& action : actions) {
      if (what_ == action.name) return (this->*action.run)();
      names += (names.empty() ? "" : ", ") + std::string(action.name);
    }
    return invalid("unknown simulation '" + what_ + "'").remedy("one of: " + names);
  }

 private:
  Result<int> run_trace() { return replay_.run(); }
  Result<int> saturate() { return replay_.saturate(); }
  Result<int> scale() { return replay_.scale(); }

  // ---- chaos

  Result<int> chaos() {
    const OrderlyEnd orderly_end;
    std::signal(SIGABRT, tell_seed);
    campaign_.options.faults = std::chrono::minutes(minutes_);
    if (trace_) return trace();
    const auto start = SteadyClock::now();
    const sim::Tally tally = run_campaign();
    const double seconds = seconds_since(start);
    if (interrupted && tally.broken.empty()) return exit_interrupted;
    if (!replay_.json.empty()) {
      if (auto told = tell_json(tally, seconds); !told) return std::move(told).error();
    }
    if (replay_.json != "-") tell(tally, seconds);
    return tally.broken.empty() ? exit_success : exit_failed;
  }

  int trace() {
    campaign_.options.keep_history = true;
    current_seed = campaign_.first;
    const sim::ChaosReport report = sim::run_chaos(campaign_.first, campaign_.options);
    for (const std::string& event : report.history) std::printf("%s\n", event.c_str());
    if (!report.ok()) std::printf("seed %llu: %s\n", number(report.seed), report.violation.c_str());
    return report.ok() ? exit_success : exit_failed;
  }

  // Up to the first broken promise: one is enough to work on.
  sim::Tally run_campaign() const {
    ProgressBar bar("chaos");
    const std::uint64_t all = campaign_.last - campaign_.first + 1;
    return sim::run_campaign(campaign_, [&](const sim::Tally& tally, std::uint64_t seed) {
      bar.show_count(tally.seeds, all);
      current_seed = seed;
      return !interrupted && tally.broken.empty();
    });
  }

  std::string replay(std::uint64_t seed) const {
    std::string command = "tutti sim chaos --seed " + std::to_string(seed);
    if (minutes_ != minutes_usual) command += " --minutes " + std::to_string(minutes_);
    return command;
  }

  void tell(const sim::Tally& tally, double seconds) const {
    for (const sim::ChaosReport& report : tally.broken) {
      const std::size_t count = report.history.size();
      for (std::size_t at = count - std::min(count, events_shown); at < count; ++at)
        std::printf("%s\n", report.history[at].c_str());
      std::printf("seed %llu: %s\nagain: %s\n", number(report.seed), report.violation.c_str(),
                  replay(report.seed).c_str());
    }
    if (!tally.broken.empty()) return;
    std::printf(
        "%llu worlds kept every promise: %llu faults, %llu jobs in %llu attempts, %s of virtual time; "
        "%llu run twice, with the same history; %.1f worlds/s\n",
        number(tally.seeds), number(tally.faults), number(tally.jobs), number(tally.attempts),
        format_duration(std::chrono::duration_cast<std::chrono::seconds>(tally.time)).c_str(),
        number(tally.twice), static_cast<double>(tally.seeds) / seconds);
  }

  static unsigned long long number(std::uint64_t value) { return value; }

  Result<> tell_json(const sim::Tally& tally, double seconds) const {
    json told{{"seeds", tally.seeds},
              {"violations", json::array()},
              {"faults", tally.faults},
              {"jobs", tally.jobs},
              {"attempts", tally.attempts},
              {"run_twice", tally.twice},
              {"virtual_seconds", tally.time / 1s},
              {"seeds_per_second", static_cast<double>(tally.seeds) / seconds}};
    for (const sim::ChaosReport& report : tally.broken) {
      told["violations"].push_back({{"seed", report.seed},
                                    {"violation", report.violation},
                                    {"replay", replay(report.seed)},
                                    {"events", report.history}});
    }
    return write_report(replay_.json, told.dump() + "\n");
  }

  static constexpr std::int64_t minutes_usual = 2;

  std::string what_;
  sim::Campaign campaign_{.first = 1, .last = 100};
  std::int64_t minutes_ = minutes_usual;
  bool trace_ = false;
  ReplayCommands replay_;
};

}  // namespace

std::unique_ptr<Command> make_sim() { return std::make_unique<Sim>(); }

}  // namespace tutti::cli
