// The libraries whose all-reduce is measured beside tutti's, each with all the settings among which its best
// is looked for. One thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/measure.hpp"
#include "common/namespaces.hpp"

namespace tutti::bench {

// Microseconds by the bytes of each rank's buffer.
using TimesUs = std::map<std::size_t, double>;

struct Workload {
  std::vector<std::size_t> sizes;  // bytes
  double seconds = 0;              // about so long for each size
};

// One library with one of its settings. Its ranks reduce f32 sums in place, in ordinary memory.
struct Peer {
  std::string library;
  std::string setting;
  std::function<Result<TimesUs>(const Workload&)> measure;
};

// The first is the library as it comes. They fail with the packages that are missing.
Result<std::vector<Peer>> mpi_peers(int ranks);
Result<std::vector<Peer>> gloo_peers(int ranks);
// Two ranks, one at each end; the pair must outlive them.
Result<std::vector<Peer>> gloo_peers(const VethPair& pair);

// Measures each once: the fastest few of them, by size.
Result<std::map<std::size_t, std::vector<Peer>>> fastest(const std::vector<Peer>& peers,
                                                         const Workload& workload, std::size_t count);

}  // namespace tutti::bench
