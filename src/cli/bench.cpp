// `tutti bench`: how fast the collectives, or the pairs, are on this machine, or on the ranks of a job; and
// how fast a server answers.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "cli/bench_serve.hpp"
#include "cli/commands.hpp"
#include "comm/reduce.hpp"
#include "lab/measure/local.hpp"
#include "lab/measure/measure.hpp"
#include "lab/measure/pairs.hpp"

namespace tutti::cli {
namespace {

// Who rests in a round waits for the slowest pair of it.
constexpr Duration fabric_deadline = 60s;

Result<comm::Transport> parse_transport(std::string_view word) {
  if (word == "auto") return comm::Transport::automatic;
  if (word == "shm") return comm::Transport::shm;
  if (word == "tcp") return comm::Transport::tcp;
  return invalid("'" + std::string(word) + "' is no transport").remedy("one of: auto, shm, tcp");
}

class Bench final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word(
        "comm|fabric|serve", what_,
        "the collectives; or each pair of ranks as JSON, which `tutti fabric` runs on a cluster; or a "
        "server that speaks OpenAI's API");
    flags.add_word("URL", url_, "of that server: http://HOST:PORT[/PATH]", false);
    flags.add("ranks", ranks_, "ranks to start on this machine (default: 2); inside a job the job's are used",
              {.min = 1, .max = 256});
    const auto set = [](auto parse, auto& target) {
      return [parse, &target](std::string_view text) -> Result<> {
        auto value = parse(text);
        if (!value) return std::move(value).error();
        target = std::move(*value);
        return {};
      };
    };
    flags.add("op", "OP", set(comm::parse_operation, plan_.operation), "the operation (default: all_reduce)");
    flags.add("dtype", "TYPE", set(comm::parse_data_type, plan_.type),
              "f32 (the default), f64, f16, bf16, i32, i64, u8");
    flags.add("bytes", "SIZES", set(measure::parse_sizes, plan_.bytes),
              "one size, or a range in steps of four (default: 1K-256M)");
    flags.add("transport", "T", set(parse_transport, transport_),
              "shm, tcp, or auto (the default): memory inside a host, TCP between hosts");
    flags.add("buffers", "KIND", set(measure::parse_buffers, plan_.buffers),
              "ordinary (the default), or shared: memory of comm::allocate, which needs no copies");
    flags.add("time", plan_.time, "how long to measure each size (default: 500ms)");
    flags.add("deadline", deadline_, "of each operation (default: 5s)");
    flags.add("kill-rank", victim_, "instead: kill this rank with -9, and tell when the others know",
              {.min = 0, .max = 255});
    serve_.declare(flags);
    flags.add("json", json_, "print a JSON list, of a server an object");
  }

  Result<int> run() override {
    if (what_ == "serve") return serve_.run(url_, json_);
    if (what_ != "comm" && what_ != "fabric")
      return invalid("unknown benchmark '" + what_ + "'").remedy("one of: comm, fabric, serve");
    if (!url_.empty()) return invalid("'" + url_ + "' is for serve alone").within("command line");
    if (plan_.bytes.empty()) plan_.bytes = *measure::parse_sizes(victim_ >= 0 ? "1M" : "1K-256M");
    Result<> done;
    if (victim_ >= 0) {
      done = kill_one();
    } else if (std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr) {
      done = run_as_rank();
    } else {
      done = run_alone();
    }
    if (!done) return std::move(done).error();
    return exit_success;
  }

 private:
  Result<> kill_one() {
    if (victim_ >= ranks_)
      return invalid("there is no rank " + std::to_string(victim_)).remedy("--ranks must be larger");
    auto killed = measure::measure_kill(local(), static_cast<int>(victim_), plan_.bytes.front());
    if (!killed) return std::move(killed).error();
    if (json_) {
      const nlohmann::json told{
          {"killed", victim_}, {"error_ms", killed->error_ms}, {"error", killed->error}};
      std::printf("%s\n", told.dump().c_str());
    } else {
      std::printf("all others knew after %.0f ms: %s\n", killed->error_ms, killed->error.c_str());
    }
    return {};
  }

  Result<> run_alone() {
    const measure::RankBody body = [this](comm::Communicator& world, const measure::Say& say) {
      return measure_on(world, say);
    };
    begin();
    auto done = measure::run_local(local(), body, [](int, const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    });
    if (done) end();
    return done;
  }

  Result<> run_as_rank() {
    auto options = comm::Options::from_environment();
    if (!options) return std::move(options).error();
    options->transport = transport_;
    options->deadline = deadline_;
    if (what_ == "fabric") options->deadline = fabric_deadline;
    auto world = comm::Communicator::connect(*options);
    if (!world) return std::move(world).error();
    if (world->rank() == 0) begin();
    auto done = measure_on(*world, [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    });
    if (done && world->rank() == 0) end();
    return done;
  }

  Result<> measure_on(comm::Communicator& world, const measure::Say& say) {
    return what_ == "fabric" ? measure_pairs_on(world, say) : measure_collectives_on(world, say);
  }

  static Result<> measure_pairs_on(comm::Communicator& world, const measure::Say& say) {
    auto all = measure::measure_pairs(
        world, {}, [](int round, int rounds) { std::fprintf(stderr, "round %d of %d\n", round, rounds); });
    if (!all) return std::move(all).error();
    if (world.rank() == 0) say(measure::pairs_json(world, *all));
    return {};
  }

  Result<> measure_collectives_on(comm::Communicator& world, const measure::Say& say) {
    auto limit = measure::measure_limit(world, plan_);
    if (!limit) return std::move(limit).error();
    if (world.rank() == 0 && !json_) say(head(world, *limit));
    bool first = true;
    auto all = measure::measure(world, plan_, *limit, [&](const measure::Measurement& one) {
      say(json_ ? (first ? " " : ",") + one.json() : row(one));
      first = false;
    });
    return all ? Result<>() : Result<>(all.error());
  }

  measure::LocalRanks local() const {
    return {.count = static_cast<int>(ranks_), .transport = transport_, .deadline = deadline_};
  }

  void begin() const {
    if (json_ && what_ == "comm") std::printf("[\n");
  }
  void end() const {
    if (json_ && what_ == "comm") std::printf("]\n");
  }

  std::string head(const comm::Communicator& world, const measure::Limit& limit) const {
    std::array<char, 256> text{};
    const bool link = limit.link_gb_s > 0;
    std::snprintf(text.data(), text.size(),
                  "%s %s, %d ranks, %s, %s buffers, %s; %s moves %.1f GB/s\n%10s %12s %12s %12s %10s",
                  std::string(comm::name_of(plan_.operation)).c_str(),
                  std::string(comm::name_of(plan_.type)).c_str(), world.size(),
                  link ? "TCP" : "shared memory", std::string(measure::name_of(plan_.buffers)).c_str(),
                  std::string(comm::instruction_set()).c_str(), link ? "the link" : "memory",
                  link ? limit.link_gb_s : limit.memory_gb_s, "size", "time us", "algbw GB/s", "busbw GB/s",
                  "of limit");
    return text.data();
  }

  static std::string row(const measure::Measurement& one) {
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), "%10s %12.2f %12.2f %12.2f %9.0f%%",
                  format_bytes(Bytes(static_cast<std::int64_t>(one.bytes))).c_str(), one.time_us,
                  one.algbw_gb_s, one.busbw_gb_s, one.limit_percent);
    return text.data();
  }

  std::string what_;
  std::string url_;
  BenchServe serve_;
  std::int64_t ranks_ = 2;
  std::int64_t victim_ = -1;
  measure::Plan plan_;
  comm::Transport transport_ = comm::Transport::automatic;
  Duration deadline_ = 5s;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench() { return std::make_unique<Bench>(); }

}  // namespace tutti::cli
