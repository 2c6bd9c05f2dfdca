#include "comm/network.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>

#include "base/check.hpp"
#include "comm/lines.hpp"

namespace tutti::comm {
namespace {

// Connections to each peer: one flow seldom fills a fast network.
constexpr std::size_t sockets_of_link = 4;
// What may lie unreduced from one peer, and from all of them.
constexpr std::size_t window_bytes_max = std::size_t{4} << 20;
constexpr std::size_t windows_bytes_max = std::size_t{256} << 20;
// Reduced at a time, so that the data is still in the cache when it is sent on.
constexpr std::size_t piece_bytes_max = std::size_t{128} << 10;

std::size_t window_for(std::size_t peers) {
  const std::size_t fair = std::min(window_bytes_max, windows_bytes_max / std::max<std::size_t>(peers, 1));
  return std::max(fair / Stripes::stripe_bytes, std::size_t{1}) * Stripes::stripe_bytes;
}

std::vector<Network::Block> equal_blocks(std::size_t bytes, std::size_t count) {
  const std::size_t each = part_bytes(bytes, count);
  std::vector<Network::Block> blocks(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t offset = std::min(bytes, i * each);
    blocks[i] = {offset, std::min(each, bytes - offset)};
  }
  return blocks;
}

}  // namespace

class Network::Run {
 public:
  Run(Network& network, const Limits& limits) : network_(network), limits_(limits) {}

  // Each pair of ranks that exchanges anything tells what operation it is in first.
  Outcome send(int member, const std::byte* data, std::size_t bytes, std::size_t ready, Sending*& sending) {
    if (auto met = meet(member, true); !met.ok()) return met;
    sending = &pump_.send(member, data, bytes, ready);
    return {};
  }
  Outcome receive(int member, std::byte* data, std::size_t bytes, std::size_t window, Receiving*& receiving) {
    if (auto met = meet(member, false); !met.ok()) return met;
    receiving = &pump_.receive(member, data, bytes, window);
    return {};
  }

  template <class Progress>
  Outcome go(const Progress& progress) {
    return pump_.run(limits_, [&]() -> Outcome {
      for (const Meeting& one : meetings_) {
        if (one.receiving != nullptr && one.receiving->stripes.done() && one.theirs != limits_.descriptor) {
          return Outcome::mismatch(one.member);
        }
      }
      progress();
      return {};
    });
  }
  Outcome go() {
    return go([] {});
  }

 private:
  struct Meeting {
    int member = 0;
    std::uint32_t theirs = 0;
    bool told = false;
    Receiving* receiving = nullptr;
  };

  Outcome meet(int member, bool outgoing) {
    auto found = std::find_if(meetings_.begin(), meetings_.end(),
                              [&](const Meeting& one) { return one.member == member; });
    if (found == meetings_.end()) {
      Link* link = nullptr;
      if (auto there = network_.link(member, limits_, link); !there.ok()) return there;
      pump_.add_link(member, link);
      meetings_.push_back({.member = member});
      found = std::prev(meetings_.end());
    }
    if (outgoing && !found->told) {
      const auto* const mine = reinterpret_cast<const std::byte*>(&limits_.descriptor);
      pump_.send(member, mine, sizeof limits_.descriptor, sizeof limits_.descriptor);
      found->told = true;
    }
    if (!outgoing && found->receiving == nullptr) {
      auto* const theirs = reinterpret_cast<std::byte*>(&found->theirs);
      found->receiving = &pump_.receive(member, theirs, sizeof found->theirs);
    }
    return {};
  }

  Network& network_;
  const Limits& limits_;
  Pump pump_;
  std::deque<Meeting> meetings_;  // grows without moving what the pump writes into
};

Network::Network(Links& links, std::uint64_t group, std::vector<Address> members, int me, Cost cost)
    : links_(links), group_(group), members_(std::move(members)), me_(me), cost_(cost) {}

Outcome Network::link(int member, const Limits& limits, Link*& found) {
  auto known = connected_.find(member);
  if (known == connected_.end()) {
    const Address& peer = members_[static_cast<std::size_t>(member)];
    auto made = links_.connect(group_, peer, sockets_of_link, limits.deadline, *limits.fault);
    if (!made) {
      if (limits.fault->raised()) return Outcome::fault();
      // A rank that has died does not listen any more; the hub knows whether it has.
      return Clock::now() >= limits.deadline ? Outcome::late(member)
                                             : Outcome::closed(member, made.error().text());
    }
    known = connected_.emplace(member, std::move(*made)).first;
  }
  found = &known->second;
  return {};
}

std::byte* Network::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

std::size_t Network::position(Stations stations) const {
  const auto found = std::find(stations.begin(), stations.end(), me_);
  TUTTI_CHECK(found != stations.end());
  return static_cast<std::size_t>(found - stations.begin());
}

Outcome Network::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                          const Limits& limits) {
  Run run(*this, limits);
  for (const Outgoing& one : outgoing) {
    Sending* sending = nullptr;
    if (auto added = run.send(one.member, one.data, one.bytes, one.bytes, sending); !added.ok()) return added;
  }
  for (const Incoming& one : incoming) {
    Receiving* receiving = nullptr;
    if (auto added = run.receive(one.member, one.data, one.bytes, 0, receiving); !added.ok()) return added;
  }
  return run.go();
}

Outcome Network::all_gather(Stations stations, std::byte* data, Blocks blocks, const Limits& limits) {
  const std::size_t mine = position(stations);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (std::size_t s = 0; s < stations.size(); ++s) {
    if (s == mine) continue;
    outgoing.push_back({stations[s], data + blocks[mine].offset, blocks[mine].bytes});
    incoming.push_back({stations[s], data + blocks[s].offset, blocks[s].bytes});
  }
  return exchange(outgoing, incoming, limits);
}

Outcome Network::broadcast(Stations stations, std::byte* data, std::size_t bytes, int root,
                           const Limits& limits) {
  const std::size_t count = stations.size();
  const std::size_t mine = position(stations);
  if (choose_broadcast(cost_, count, bytes) == Broadcast::star) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (root != me_) incoming.push_back({root, data, bytes});
    for (const int station : stations) {
      if (root == me_ && station != me_) outgoing.push_back({station, data, bytes});
    }
    return exchange(outgoing, incoming, limits);
  }
  const int before = stations[(mine + count - 1) % count];
  const int after = stations[(mine + 1) % count];
  Run run(*this, limits);
  Receiving* receiving = nullptr;
  Sending* sending = nullptr;
  if (root != me_) {
    if (auto added = run.receive(before, data, bytes, 0, receiving); !added.ok()) return added;
  }
  if (after != root) {
    if (auto added = run.send(after, data, bytes, root == me_ ? bytes : 0, sending); !added.ok())
      return added;
  }
  return run.go([&] {
    if (receiving != nullptr && sending != nullptr) sending->ready = receiving->received();
  });
}

Outcome Network::all_reduce(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                            std::size_t count, const Limits& limits) {
  const std::size_t bytes = count * size_of(how.type);
  if (choose_all_reduce(cost_, stations.size(), bytes) == AllReduce::doubling) {
    return all_reduce_doubling(stations, how, in, out, count, limits);
  }
  const auto blocks = equal_blocks(bytes, stations.size());
  return reduce_slices(stations, how, in, out, blocks, Gather::all, -1, limits);
}

Outcome Network::reduce_scatter(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                                Blocks blocks, const Limits& limits) {
  return reduce_slices(stations, how, in, out, blocks, Gather::none, -1, limits);
}

Outcome Network::reduce(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                        std::size_t count, int root, const Limits& limits) {
  const auto blocks = equal_blocks(count * size_of(how.type), stations.size());
  return reduce_slices(stations, how, in, out, blocks, Gather::root, root, limits);
}

// Every station sends slice s of its data to station s, which adds the slices up as they come in, in the
// order of the stations, and sends the sum on while the rest is still arriving. Over one connection the sum
// follows the data, so both directions of the network are busy all the time.
Outcome Network::reduce_slices(Stations stations, const Reduce& how, const std::byte* in, std::byte* out,
                               Blocks blocks, Gather gather, int root, const Limits& limits) {
  const std::size_t count = stations.size();
  const std::size_t mine = position(stations);
  const Block my_block = blocks[mine];
  const std::size_t window = window_for(count - 1);
  std::byte* const windows = scratch(window * count);
  Run run(*this, limits);
  std::vector<Receiving*> parts(count, nullptr);
  std::vector<Sending*> sums;
  for (std::size_t s = 0; s < count; ++s) {
    if (s == mine) continue;
    const int station = stations[s];
    Sending* part = nullptr;
    auto added = run.send(station, in + blocks[s].offset, blocks[s].bytes, blocks[s].bytes, part);
    if (added.ok()) added = run.receive(station, windows + s * window, my_block.bytes, window, parts[s]);
    if (!added.ok()) return added;
    if (gather == Gather::all || (gather == Gather::root && root == station)) {
      Sending* sum = nullptr;
      if (added = run.send(station, out + my_block.offset, my_block.bytes, 0, sum); !added.ok()) return added;
      sums.push_back(sum);
    }
    if (gather == Gather::all || (gather == Gather::root && root == me_)) {
      Receiving* sum = nullptr;
      if (added = run.receive(station, out + blocks[s].offset, blocks[s].bytes, 0, sum); !added.ok())
        return added;
    }
  }

  const std::size_t element = size_of(how.type);
  std::size_t reduced = 0;
  std::vector<const std::byte*> sources(count);
  return run.go([&] {
    std::size_t available = my_block.bytes;
    for (const Receiving* part : parts) {
      if (part != nullptr) available = std::min(available, part->received() / element * element);
    }
    while (reduced < available) {
      const std::size_t in_ring = reduced % window;
      const std::size_t bytes = std::min({available - reduced, window - in_ring, piece_bytes_max});
      for (std::size_t s = 0; s < count; ++s) {
        sources[s] = s == mine ? in + my_block.offset + reduced : windows + s * window + in_ring;
      }
      comm::reduce(how, out + my_block.offset + reduced, sources, bytes / element);
      reduced += bytes;
    }
    for (Receiving* part : parts) {
      if (part != nullptr) part->consumed = reduced;
    }
    for (Sending* sum : sums) sum->ready = reduced;
  });
}

// After round r a station has the data of 2^r stations, its own and those behind it, and in the next round
// passes all of it on, 2^r stations ahead.
Outcome Network::all_reduce_doubling(Stations stations, const Reduce& how, const std::byte* in,
                                     std::byte* out, std::size_t count, const Limits& limits) {
  const std::size_t bytes = count * size_of(how.type);
  const std::size_t hosts = stations.size();
  const std::size_t mine = position(stations);
  // Entry d is the data of the station d places behind this one.
  std::byte* const collected = scratch(bytes * hosts);
  copy_bytes(collected, in, bytes);
  for (std::size_t have = 1; have < hosts; have *= 2) {
    const std::size_t moved = std::min(have, hosts - have);
    const Outgoing outgoing{stations[(mine + have) % hosts], collected, moved * bytes};
    const Incoming incoming{stations[(mine + hosts - have) % hosts], collected + have * bytes, moved * bytes};
    if (auto done = exchange({&outgoing, 1}, {&incoming, 1}, limits); !done.ok()) return done;
  }
  std::vector<const std::byte*> sources(hosts);
  for (std::size_t s = 0; s < hosts; ++s) sources[s] = collected + (mine + hosts - s) % hosts * bytes;
  comm::reduce(how, out, sources, count);
  return {};
}

}  // namespace tutti::comm
