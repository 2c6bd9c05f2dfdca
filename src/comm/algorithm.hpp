// Which way an operation goes between hosts, from what was measured: a message arrives after its latency and
// the time that its bytes take, and keeps its sender busy for a moment. Pure. Every way adds up in the order
// of the hosts, so the choice never changes a result.
#pragma once

#include <cstddef>

namespace tutti::comm {

struct Cost {
  double latency_s = 0;
  double message_s = 0;  // of the sender, for each message
  double bytes_per_s = 1;

  // One rank sends so many messages of so many bytes in all, at once.
  double round(std::size_t messages, std::size_t bytes) const {
    return latency_s + static_cast<double>(messages) * message_s + static_cast<double>(bytes) / bytes_per_s;
  }
};

enum class AllReduce {
  doubling,  // everyone collects everything in log2(hosts) rounds, and adds up for itself: few messages, many
             // bytes
  slices,    // everyone adds up one slice for all: two rounds, the fewest bytes
};
AllReduce choose_all_reduce(const Cost& cost, std::size_t hosts, std::size_t bytes);

enum class Broadcast {
  star,   // the root sends to each
  chain,  // each passes on what it gets while it comes in
};
Broadcast choose_broadcast(const Cost& cost, std::size_t hosts, std::size_t bytes);

// Beyond this, collecting everything would take too much memory.
inline constexpr std::size_t doubling_bytes_max = std::size_t{4} << 20;

}  // namespace tutti::comm
