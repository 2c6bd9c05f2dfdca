#include "comm/collectives.hpp"

#include <algorithm>
#include <map>

#include "base/check.hpp"

namespace tutti::comm {

Layout Layout::of(const std::vector<std::string>& host_of, int me) {
  Layout layout{.size = static_cast<int>(host_of.size()), .me = me, .hosts = {}};
  std::map<std::string, std::size_t> index_of;
  for (int member = 0; member < layout.size; ++member) {
    const std::string& host = host_of[static_cast<std::size_t>(member)];
    const auto [found, added] = index_of.emplace(host, layout.hosts.size());
    if (added) layout.hosts.emplace_back();
    layout.hosts[found->second].push_back(member);
  }
  return layout;
}

std::size_t Layout::my_host() const {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const auto& members) {
    return std::find(members.begin(), members.end(), me) != members.end();
  });
  return static_cast<std::size_t>(found - hosts.begin());
}

int Layout::local_rank() const {
  const auto& members = hosts[my_host()];
  return static_cast<int>(std::find(members.begin(), members.end(), me) - members.begin());
}

std::vector<int> Layout::by_host() const {
  std::vector<int> order;
  for (const auto& members : hosts) order.insert(order.end(), members.begin(), members.end());
  return order;
}

bool Layout::in_host_order() const {
  const auto order = by_host();
  return std::is_sorted(order.begin(), order.end());
}

Collectives::Collectives(Layout layout, std::unique_ptr<SharedMemory> local, std::unique_ptr<Network> network)
    : layout_(std::move(layout)), local_(std::move(local)), network_(std::move(network)) {
  TUTTI_CHECK((layout_.hosts.size() > 1) == (network_ != nullptr));
}

Outcome Collectives::run(const Call& call, const Limits& limits) {
  if (layout_.size == 1) return run_alone(call);
  if (!network_) return run_on_host(call, limits);
  return run_between_hosts(call, limits);
}

Outcome Collectives::run_alone(const Call& call) const {
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter: {
      const std::byte* const source = call.in;
      comm::reduce(whole(call), call.out, {&source, 1}, call.count);
      return {};
    }
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
    case Operation::broadcast:
      copy_bytes(call.out, call.in, call.bytes());
      return {};
    case Operation::send:
    case Operation::recv:
      return Outcome::failed("a rank cannot send to itself");
    case Operation::barrier:
      return {};
  }
  return {};
}

Outcome Collectives::run_on_host(const Call& call, const Limits& limits) {
  switch (call.operation) {
    case Operation::all_reduce:
      return local_->all_reduce(whole(call), call.in, call.out, call.count, limits);
    case Operation::reduce:
      return local_->reduce(whole(call), call.in, call.out, call.count, call.root, limits);
    case Operation::reduce_scatter:
      return local_->reduce_scatter(whole(call), call.in, call.out, call.count, limits);
    case Operation::all_gather:
      return local_->all_gather(call.in, call.out, call.bytes(), limits);
    case Operation::broadcast:
      return local_->broadcast(call.in, call.out, call.bytes(), call.root, limits);
    case Operation::all_to_all:
      return local_->all_to_all(call.in, call.out, call.bytes(), limits);
    case Operation::gather:
      return local_->gather(call.in, call.out, call.bytes(), call.root, limits);
    case Operation::scatter:
      return local_->scatter(call.in, call.out, call.bytes(), call.root, limits);
    // A pair's group has the sender first.
    case Operation::send:
    case Operation::recv:
      return local_->broadcast(call.in, call.out, call.bytes(), 0, limits);
    case Operation::barrier:
      return local_->barrier(limits);
  }
  return {};
}

Outcome Collectives::run_between_hosts(const Call& call, const Limits& limits) {
  switch (call.operation) {
    case Operation::all_reduce:
      return all_reduce(call, limits);
    case Operation::reduce:
      return reduce(call, limits);
    case Operation::reduce_scatter:
      return reduce_scatter(call, limits);
    case Operation::all_gather:
      return all_gather(call, limits);
    case Operation::broadcast: {
      if (call.root == layout_.me) copy_bytes(call.out, call.in, call.bytes());
      return broadcast(call.out, call.bytes(), call.root, limits);
    }
    case Operation::send: {
      const Network::Outgoing outgoing{1, call.in, call.bytes()};
      return network_->exchange({&outgoing, 1}, {}, limits);
    }
    case Operation::recv: {
      const Network::Incoming incoming{0, call.out, call.bytes()};
      return network_->exchange({}, {&incoming, 1}, limits);
    }
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return exchange_blocks(call, limits);
    case Operation::barrier:
      return barrier(limits);
  }
  return {};
}

// Each host adds up, the hosts add up among one another, each host hands out.
Outcome Collectives::all_reduce(const Call& call, const Limits& limits) {
  const std::vector<int> leaders = stations(-1);
  const std::byte* sum = call.in;
  if (local_) {
    if (auto done = local_->reduce(partial(call), call.in, call.out, call.count, 0, limits); !done.ok()) {
      return of_host(done);
    }
    sum = call.out;
  }
  if (station_of_my_host(-1) == layout_.me) {
    auto done = network_->all_reduce(leaders, whole(call), sum, call.out, call.count, limits);
    if (!done.ok()) return done;
  }
  return local_ ? of_host(local_->broadcast(call.out, call.out, call.bytes(), 0, limits)) : Outcome{};
}

Outcome Collectives::reduce(const Call& call, const Limits& limits) {
  const std::vector<int> leaders = stations(call.root);
  const int leader = station_of_my_host(call.root);
  const bool leads = leader == layout_.me;
  std::byte* const target = layout_.me == call.root ? call.out : scratch(leads ? call.bytes() : 0);
  const std::byte* sum = call.in;
  if (local_) {
    auto done = local_->reduce(partial(call), call.in, target, call.count, local_index(leader), limits);
    if (!done.ok()) return of_host(done);
    sum = target;
  }
  if (!leads) return {};
  return network_->reduce(leaders, whole(call), sum, target, call.count, call.root, limits);
}

Outcome Collectives::broadcast(std::byte* data, std::size_t bytes, int root, const Limits& limits) {
  const int leader = station_of_my_host(root);
  if (leader == layout_.me) {
    if (auto done = network_->broadcast(stations(root), data, bytes, root, limits); !done.ok()) return done;
  }
  return local_ ? of_host(local_->broadcast(data, data, bytes, local_index(leader), limits)) : Outcome{};
}

Outcome Collectives::all_gather(const Call& call, const Limits& limits) {
  const std::size_t bytes = call.bytes();
  const bool ordered = layout_.in_host_order();
  std::byte* const all = ordered ? call.out : scratch(bytes * static_cast<std::size_t>(layout_.size));
  const auto blocks = blocks_of_hosts(bytes);
  std::byte* const mine = all + blocks[layout_.my_host()].offset;
  const bool leads = station_of_my_host(-1) == layout_.me;
  if (local_) {
    if (auto done = local_->gather(call.in, mine, bytes, 0, limits); !done.ok()) return of_host(done);
  } else {
    copy_bytes(mine, call.in, bytes);
  }
  if (leads) {
    if (auto done = network_->all_gather(stations(-1), all, blocks, limits); !done.ok()) return done;
  }
  if (local_) {
    const std::size_t total = bytes * static_cast<std::size_t>(layout_.size);
    if (auto done = local_->broadcast(all, all, total, 0, limits); !done.ok()) return of_host(done);
  }
  if (ordered) return {};
  std::size_t at = 0;
  for (const int member : layout_.by_host())
    copy_bytes(call.out + static_cast<std::size_t>(member) * bytes, all + bytes * at++, bytes);
  return {};
}

Outcome Collectives::reduce_scatter(const Call& call, const Limits& limits) {
  const std::size_t bytes = call.bytes();
  const std::size_t total = bytes * static_cast<std::size_t>(layout_.size);
  const bool ordered = layout_.in_host_order();
  std::byte* const sums = scratch(2 * total);
  const std::byte* in = call.in;
  if (!ordered) {
    std::byte* const sorted = sums + total;
    std::size_t at = 0;
    for (const int member : layout_.by_host())
      copy_bytes(sorted + bytes * at++, call.in + static_cast<std::size_t>(member) * bytes, bytes);
    in = sorted;
  }
  if (local_) {
    const std::size_t count = call.count * static_cast<std::size_t>(layout_.size);
    if (auto done = local_->reduce(partial(call), in, sums, count, 0, limits); !done.ok())
      return of_host(done);
    in = sums;
  }
  const auto blocks = blocks_of_hosts(bytes);
  const std::size_t my_block = blocks[layout_.my_host()].offset;
  if (station_of_my_host(-1) == layout_.me) {
    auto done = network_->reduce_scatter(stations(-1), whole(call), in, sums, blocks, limits);
    if (!done.ok()) return done;
  }
  if (local_) return of_host(local_->scatter(sums + my_block, call.out, bytes, 0, limits));
  copy_bytes(call.out, sums + my_block, bytes);
  return {};
}

// Blocks that go from one member to another take the network, whoever the two are.
Outcome Collectives::exchange_blocks(const Call& call, const Limits& limits) {
  const std::size_t bytes = call.bytes();
  const bool to_all = call.operation != Operation::gather;
  const bool from_all = call.operation != Operation::scatter;
  const auto block = [&](auto* data, int member) { return data + static_cast<std::size_t>(member) * bytes; };
  std::vector<Network::Outgoing> outgoing;
  std::vector<Network::Incoming> incoming;
  const bool sends_many = to_all && (call.root < 0 || call.root == layout_.me);
  const bool receives_many = from_all && (call.root < 0 || call.root == layout_.me);
  const std::byte* in = call.in;
  if (sends_many && receives_many &&
      call.in == call.out) {  // in place: what arrives must not overwrite what leaves
    std::byte* const saved = scratch(bytes * static_cast<std::size_t>(layout_.size));
    copy_bytes(saved, call.in, bytes * static_cast<std::size_t>(layout_.size));
    in = saved;
  }
  for (int member = 0; member < layout_.size; ++member) {
    if (member == layout_.me) continue;
    if (sends_many) outgoing.push_back({member, block(in, member), bytes});
    if (receives_many) incoming.push_back({member, block(call.out, member), bytes});
  }
  if (!sends_many && to_all) incoming.push_back({call.root, call.out, bytes});
  if (!receives_many && from_all) outgoing.push_back({call.root, in, bytes});
  if (sends_many && receives_many) copy_bytes(block(call.out, layout_.me), block(in, layout_.me), bytes);
  if (sends_many && !receives_many) copy_bytes(call.out, block(in, layout_.me), bytes);
  if (!sends_many && receives_many) copy_bytes(block(call.out, layout_.me), in, bytes);
  return network_->exchange(outgoing, incoming, limits);
}

Outcome Collectives::barrier(const Limits& limits) {
  if (local_) {
    if (auto done = local_->barrier(limits); !done.ok()) return of_host(done);
  }
  if (station_of_my_host(-1) == layout_.me) {
    const std::vector<int> leaders = stations(-1);
    const std::vector<Network::Block> nothing(leaders.size());
    std::byte none{};
    if (auto done = network_->all_gather(leaders, &none, nothing, limits); !done.ok()) return done;
  }
  return local_ ? of_host(local_->barrier(limits)) : Outcome{};
}

std::vector<int> Collectives::stations(int root) const {
  std::vector<int> leaders;
  for (const auto& members : layout_.hosts) {
    const bool has_root = std::find(members.begin(), members.end(), root) != members.end();
    leaders.push_back(has_root ? root : members.front());
  }
  return leaders;
}

int Collectives::station_of_my_host(int root) const { return stations(root)[layout_.my_host()]; }

int Collectives::local_index(int member) const {
  const auto& members = layout_.hosts[layout_.my_host()];
  return static_cast<int>(std::find(members.begin(), members.end(), member) - members.begin());
}

std::vector<Network::Block> Collectives::blocks_of_hosts(std::size_t bytes) const {
  std::vector<Network::Block> blocks;
  std::size_t offset = 0;
  for (const auto& members : layout_.hosts) {
    blocks.push_back({offset, members.size() * bytes});
    offset += members.size() * bytes;
  }
  return blocks;
}

Reduce Collectives::partial(const Call& call) const {
  return {.type = call.type, .reduction = call.reduction, .divide_by = 0};
}

Reduce Collectives::whole(const Call& call) const {
  return {
      .type = call.type, .reduction = call.reduction, .divide_by = static_cast<std::size_t>(layout_.size)};
}

std::byte* Collectives::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

Outcome Collectives::of_host(Outcome outcome) const {
  if (outcome.member >= 0) {
    outcome.member = layout_.hosts[layout_.my_host()][static_cast<std::size_t>(outcome.member)];
  }
  return outcome;
}

}  // namespace tutti::comm
