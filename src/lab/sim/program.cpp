#include "lab/sim/program.hpp"

#include "base/check.hpp"

namespace tutti::sim {
namespace {

constexpr std::int64_t short_ms_max = 50;
constexpr std::int64_t long_ms_max = 12'000;
constexpr std::int64_t ready_ms_max = 3'000;

}  // namespace

// KIND MILLISECONDS RANK ATTEMPTS
std::vector<std::string> some_program(Prng& prng) {
  const auto ms = prng.chance(0.2) ? prng.between(0, short_ms_max) : prng.between(short_ms_max, long_ms_max);
  const double kind = prng.unit();
  std::string name = "succeed";
  if (kind > 0.70) name = "fail";
  if (kind > 0.80) name = "fail_first";
  if (kind > 0.90) name = "hang";
  if (kind > 0.96) name = "poison";
  return {name, std::to_string(ms), std::to_string(prng.below(3)), std::to_string(prng.between(1, 2))};
}

std::optional<Ending> ending_of(const std::vector<std::string>& command, const keeper::RankKey& key) {
  TUTTI_CHECK(command.size() == 4, "a simulated program has four words");
  // Ranks of a gang do not end at the same instant.
  const Duration after =
      std::chrono::milliseconds(std::stoll(command[1])) + std::chrono::microseconds(key.rank * 37);
  const bool is_the_rank = key.rank == std::stoi(command[2]);
  if (command[0] == "hang" && is_the_rank) return std::nullopt;
  if (is_poison(command) || ready_after(command)) return std::nullopt;
  if (command[0] == "fail" && is_the_rank) return Ending{after / 2, 3};
  if (command[0] == "fail_first" && is_the_rank && key.attempt < std::stoi(command[3]))
    return Ending{after / 2, 1};
  return Ending{after, 0};
}

std::optional<Duration> kills_node_after(const std::vector<std::string>& command,
                                         const keeper::RankKey& key) {
  // Every gang has this rank.
  if (!is_poison(command) || key.rank != 0) return std::nullopt;
  return std::chrono::milliseconds(std::stoll(command[1]));
}

std::optional<Duration> ready_after(const std::vector<std::string>& command) {
  if (command.front() != "answer") return std::nullopt;
  return std::chrono::milliseconds(std::stoll(command[1]));
}

std::vector<std::string> some_replica(Prng& prng, bool is_good) {
  return {is_good ? "answer" : "fail", std::to_string(prng.between(short_ms_max, ready_ms_max)), "0", "1"};
}

bool is_poison(const std::vector<std::string>& command) { return command.front() == "poison"; }

bool hangs(const std::vector<std::string>& command) { return command.front() == "hang"; }

}  // namespace tutti::sim
