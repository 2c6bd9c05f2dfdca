// Collectives between hosts, over TCP. The stations of an operation are the members of a group that take part
// in it: one for each host, or all. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "comm/algorithm.hpp"
#include "comm/links.hpp"
#include "comm/outcome.hpp"
#include "comm/pump.hpp"
#include "comm/reduce.hpp"

namespace tutti::comm {

class Network {
 public:
  // `members` of the group in their order; links to them are made at their first use.
  Network(Links& links, std::uint64_t group, std::vector<Address> members, int me, Cost cost);

  // Members by index, each once, this rank among them; the same on all of them.
  using Stations = std::span<const int>;

  // A part of a buffer.
  struct Block {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  using Blocks = std::span<const Block>;  // one for each station

  Outcome all_reduce(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                     std::size_t count, const Limits& limits);
  // Station s gets block s of the sum, in its place in `out`.
  Outcome reduce_scatter(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                         Blocks blocks, const Limits& limits);
  // The sum goes to `out` of the member `root`; the others use theirs as scratch.
  Outcome reduce(Stations stations, const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                 int root, const Limits& limits);
  // Block s of everyone's `data` becomes what station s has there.
  Outcome all_gather(Stations stations, std::byte* data, Blocks blocks, const Limits& limits);
  Outcome broadcast(Stations stations, std::byte* data, std::size_t bytes, int root, const Limits& limits);

  // What this rank sends to and receives from single members; both must name the transfer.
  struct Outgoing {
    int member = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Incoming {
    int member = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  Outcome exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                   const Limits& limits);

 private:
  class Run;  // one operation: a pump, and the check that the others are in the same one

  // Who gets the slices of a sum after they were added up.
  enum class Gather { none, all, root };
  Outcome reduce_slices(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                        Blocks blocks, Gather gather, int root, const Limits& limits);
  Outcome all_reduce_doubling(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                              std::size_t count, const Limits& limits);

  std::size_t position(Stations stations) const;
  Outcome link(int member, const Limits& limits, Link*& found);
  std::byte* scratch(std::size_t bytes);

  Links& links_;
  std::uint64_t group_;
  std::vector<Address> members_;
  int me_;
  Cost cost_;
  std::map<int, Link> connected_;
  std::vector<std::byte> scratch_;
};

}  // namespace tutti::comm
