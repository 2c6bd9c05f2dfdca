// Chaos over many seeds. Some of them are run twice, and both histories must be the same to the byte. One
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lab/sim/chaos.hpp"

namespace tutti::sim {

struct Campaign {
  std::uint64_t first = 1;
  std::uint64_t last = 1;
  ChaosOptions options;
  std::uint64_t twice_every = 50;  // 0: none is run twice
};

struct Tally {
  std::uint64_t seeds = 0;
  std::uint64_t twice = 0;  // of these, run twice
  std::uint64_t faults = 0;
  std::uint64_t jobs = 0;
  std::uint64_t attempts = 0;
  std::uint64_t events = 0;
  Duration time{};                  // virtual, of all seeds
  std::vector<ChaosReport> broken;  // those in which a promise was broken
};

// `next` is called before each seed with what there is so far; the campaign ends when it says no.
Tally run_campaign(const Campaign& campaign,
                   const std::function<bool(const Tally&, std::uint64_t seed)>& next);

}  // namespace tutti::sim
