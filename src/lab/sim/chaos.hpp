// Chaos: the real logic of controller and agents in a world where everything fails. First there are faults,
// and the promises of the cluster must hold all the time; then the faults stop, and everything that was
// accepted must finish in bounded time. One seed is one history, to the byte. Any thread; each run is a world
// of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "lab/sim/world.hpp"

namespace tutti::sim {

struct ChaosOptions {
  Duration faults = std::chrono::minutes(2);  // how long there are any
  bool keep_history = false;
  Sabotage sabotage = Sabotage::none;
};

struct ChaosReport {
  std::uint64_t seed = 0;
  std::string violation;             // the first broken promise, "" if all were kept
  std::vector<std::string> history;  // the last events, or all if they were to be kept
  std::uint64_t digest = 0;          // of all events
  std::uint64_t events = 0;
  std::uint64_t faults = 0;
  std::uint64_t jobs = 0;
  std::uint64_t attempts = 0;  // of all jobs together
  Duration time{};             // virtual

  bool ok() const { return violation.empty(); }
};

ChaosReport run_chaos(std::uint64_t seed, const ChaosOptions& options);

}  // namespace tutti::sim
