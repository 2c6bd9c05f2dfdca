// How fast each pair of ranks reaches the other: the work of `tutti bench fabric`, which is what `tutti
// fabric` runs with one rank on each node. Every rank calls it. One thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "comm/communicator.hpp"

namespace tutti::measure {

// Rounds of pairs, the lower rank first: each pair of so many ranks plays once, no rank twice in a round, in
// as few rounds as that allows.
using Round = std::vector<std::pair<int, int>>;
std::vector<Round> tournament(int ranks);

struct PairOptions {
  Duration latency_time = 50ms;     // spent on the small messages of a pair, at most
  Duration bandwidth_time = 150ms;  // spent on the large ones, each way, unless one takes longer
};

// From one rank to another.
struct PairResult {
  int from = 0;
  int to = 0;
  double latency_us = 0;  // half of the best round trip of the pair
  double bandwidth_gb_s = 0;
};

// Both directions of each pair, by from and to, on rank 0; nothing on the others. `each` is called on rank 0
// before each round with its number, from 1, and how many there are.
Result<std::vector<PairResult>> measure_pairs(comm::Communicator& world, const PairOptions& options,
                                              const std::function<void(int round, int rounds)>& each);

// The results as a JSON list, one object a line, with the nodes of the ranks as names.
std::string pairs_json(const comm::Communicator& world, const std::vector<PairResult>& results);

}  // namespace tutti::measure
