// The operations of one group, put together from what its members share: memory inside a host, the network
// between hosts. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/call.hpp"
#include "comm/network.hpp"
#include "comm/outcome.hpp"
#include "comm/shm.hpp"

namespace tutti::comm {

// Who is where, by index in the group.
struct Layout {
  int size = 1;
  int me = 0;
  std::vector<std::vector<int>> hosts;  // the members of each, ascending; hosts by their first member

  // `host_of` each member.
  static Layout of(const std::vector<std::string>& host_of, int me);

  std::size_t my_host() const;
  // My place among the members of my host.
  int local_rank() const;
  // Whether the members of each host have consecutive numbers, host after host.
  bool in_host_order() const;
  // All members, host after host.
  std::vector<int> by_host() const;
};

class Collectives {
 public:
  // `local` is there if my host has several members, `network` if there are several hosts.
  Collectives(Layout layout, std::unique_ptr<SharedMemory> local, std::unique_ptr<Network> network);

  Outcome run(const Call& call, const Limits& limits);

 private:
  Outcome run_alone(const Call& call) const;
  Outcome run_on_host(const Call& call, const Limits& limits);
  Outcome run_between_hosts(const Call& call, const Limits& limits);

  Outcome all_reduce(const Call& call, const Limits& limits);
  Outcome reduce(const Call& call, const Limits& limits);
  Outcome broadcast(std::byte* data, std::size_t bytes, int root, const Limits& limits);
  Outcome all_gather(const Call& call, const Limits& limits);
  Outcome reduce_scatter(const Call& call, const Limits& limits);
  Outcome exchange_blocks(const Call& call, const Limits& limits);
  Outcome barrier(const Limits& limits);

  // One member for each host; `root`, if it is one, stands for its own.
  std::vector<int> stations(int root) const;
  std::vector<Network::Block> blocks_of_hosts(std::size_t bytes) const;
  int station_of_my_host(int root) const;
  int local_index(int member) const;
  Reduce partial(const Call& call) const;
  Reduce whole(const Call& call) const;
  std::byte* scratch(std::size_t bytes);
  // Outcomes of the parts name their own members; this gives the group's.
  Outcome of_host(Outcome outcome) const;

  Layout layout_;
  std::unique_ptr<SharedMemory> local_;
  std::unique_ptr<Network> network_;
  std::vector<std::byte> scratch_;
};

}  // namespace tutti::comm
