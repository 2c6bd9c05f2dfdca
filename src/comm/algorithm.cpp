#include "comm/algorithm.hpp"

#include <algorithm>

namespace tutti::comm {

AllReduce choose_all_reduce(const Cost& cost, std::size_t hosts, std::size_t bytes) {
  const std::size_t others = hosts - 1;
  if (bytes * others > doubling_bytes_max) return AllReduce::slices;
  double doubling = 0;
  for (std::size_t have = 1; have < hosts; have *= 2)
    doubling += cost.round(1, bytes * std::min(have, hosts - have));
  const double slices = 2 * cost.round(others, bytes * others / hosts);
  return doubling <= slices ? AllReduce::doubling : AllReduce::slices;
}

Broadcast choose_broadcast(const Cost& cost, std::size_t hosts, std::size_t bytes) {
  const std::size_t others = hosts - 1;
  const double star = cost.round(others, bytes * others);
  // Bytes are passed on while they come in: only the latencies add up.
  const double chain =
      static_cast<double>(others) * cost.round(1, 0) + static_cast<double>(bytes) / cost.bytes_per_s;
  return star <= chain ? Broadcast::star : Broadcast::chain;
}

}  // namespace tutti::comm
