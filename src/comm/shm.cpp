#include "comm/shm.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "comm/lines.hpp"
#include "comm/slices.hpp"

namespace tutti::comm {
namespace {

// Up to here, for all members together, every member reduces everything itself: one wait instead of two.
constexpr std::size_t one_phase_bytes_max = std::size_t{64} << 10;

}  // namespace

SharedMemory::SharedMemory(Segment segment, const std::vector<pid_t>& pids, int me, Patience patience)
    : slots_(std::move(segment), static_cast<int>(pids.size()), me, patience), exchange_(pids) {}

// Chunk after chunk through the slots: what is shown now is consumed a step later, when the others have had
// time to show theirs.
class SharedMemory::StagedShare {
 public:
  StagedShare(Slots& slots, const Share& what)
      : slots_(slots),
        what_(what),
        members_(static_cast<std::size_t>(slots.size())),
        chunk_bytes_(std::max(Slots::slot_bytes / what.blocks / line_bytes * line_bytes, what.granule)),
        chunks_(std::max<std::size_t>(1, (what.block_bytes + chunk_bytes_ - 1) / chunk_bytes_)),
        first_ticket_(slots.take_tickets(chunks_)),
        pieces_(members_) {
    TUTTI_CHECK(chunk_bytes_ * what.blocks <= Slots::slot_bytes && chunk_bytes_ % what.granule == 0);
  }

  Outcome run(const Limits& limits, const Consume& consume) {
    for (std::size_t i = 0; i <= chunks_; ++i) {
      if (i < chunks_) {
        if (auto shown = show(i, limits); !shown.ok()) return shown;
      }
      if (i == 0 || !what_.consumes) continue;
      if (auto there = see(i - 1, limits); !there.ok()) return there;
      consume((i - 1) * chunk_bytes_, length(i - 1), pieces_);
    }
    return {};
  }

 private:
  std::uint32_t ticket(std::size_t chunk) const { return first_ticket_ + static_cast<std::uint32_t>(chunk); }

  std::size_t length(std::size_t chunk) const {
    return std::min(chunk_bytes_, what_.block_bytes - std::min(chunk * chunk_bytes_, what_.block_bytes));
  }

  Outcome show(std::size_t chunk, const Limits& limits) {
    const bool personal = what_.blocks == members_ && members_ > 1;
    return slots_.show(ticket(chunk), limits, [&](std::byte* slot) {
      if (!what_.published_by(slots_.me())) return;
      for (std::size_t b = 0; b < what_.blocks; ++b) {
        if (personal && b == static_cast<std::size_t>(slots_.me())) continue;
        const std::byte* const source = what_.in + b * what_.block_bytes + chunk * chunk_bytes_;
        copy_bytes(slot + b * chunk_bytes_, source, length(chunk));
      }
    });
  }

  Outcome see(std::size_t chunk, const Limits& limits) {
    for (std::size_t m = 0; m < members_; ++m) {
      const int member = static_cast<int>(m);
      if (member == slots_.me()) {
        pieces_[m] = {what_.in + chunk * chunk_bytes_, what_.block_bytes};
      } else if (what_.published_by(member)) {
        if (auto there = slots_.see(member, ticket(chunk), limits); !there.ok()) return there;
        pieces_[m] = {slots_.shown(member, ticket(chunk)), chunk_bytes_};
      }
    }
    return {};
  }

  Slots& slots_;
  const Share& what_;
  std::size_t members_;
  std::size_t chunk_bytes_;
  std::size_t chunks_;
  std::uint32_t first_ticket_;
  std::vector<Piece> pieces_;
};

Outcome SharedMemory::share(const Share& what, const Limits& limits, const Consume& consume) {
  const std::size_t bytes = what.blocks * what.block_bytes;
  if (bytes >= direct_bytes_min) {
    const bool publishes = what.published_by(rank());
    // What will be overwritten while others read it is shown as memory that they cannot reach.
    const std::span<const std::byte> reachable(what.in, publishes && !what.in_place ? bytes : 0);
    Places places;
    const Offer offer{.in = reachable, .needs_in = publishes, .staging = speeds_.next()};
    if (auto met = exchange_.run(slots_, offer, limits, places); !met.ok()) return met;
    if (places.direct) {
      std::vector<Piece> pieces;
      for (const std::byte* in : places.in) pieces.push_back({in, what.block_bytes});
      if (what.consumes) consume(0, what.block_bytes, pieces);
      return slots_.meet(limits);
    }
  }
  return StagedShare(slots_, what).run(limits, consume);
}

Outcome SharedMemory::reduce_at_once(const Reduce& how, const std::byte* in, std::byte* out,
                                     std::size_t count, int root, const Limits& limits) {
  const std::uint32_t ticket = slots_.take_tickets();
  const auto fill = [&](std::byte* slot) { copy_bytes(slot, in, count * size_of(how.type)); };
  if (auto shown = slots_.show(ticket, limits, fill); !shown.ok()) return shown;
  if (root >= 0 && root != rank()) return {};
  if (auto there = slots_.see_all(ticket, limits); !there.ok()) return there;
  std::array<const std::byte*, members_max> sources;
  for (int member = 0; member < size(); ++member) {
    sources[static_cast<std::size_t>(member)] = member == rank() ? in : slots_.shown(member, ticket);
  }
  comm::reduce(how, out, {sources.data(), static_cast<std::size_t>(size())}, count);
  return {};
}

Outcome SharedMemory::reduce_direct(const Reduce& how, const Places& places, std::size_t count, int root,
                                    const Limits& limits) {
  const std::size_t element = size_of(how.type);
  const auto members = static_cast<std::size_t>(size());
  const std::size_t slice = part_bytes(count * element, members);
  const std::size_t begin = std::min(count * element, slice * static_cast<std::size_t>(rank()));
  const std::size_t end = std::min(count * element, begin + slice);
  std::vector<const std::byte*> sources(members);
  std::vector<std::byte*> targets;
  for (std::size_t m = 0; m < members; ++m) {
    sources[m] = places.in[m] + begin;
    if (root < 0 || root == static_cast<int>(m)) targets.push_back(places.out[m] + begin);
  }
  const Store store = store_for(count * element * members);
  comm::reduce(how, std::span<std::byte* const>(targets), sources, (end - begin) / element, store);
  return slots_.meet(limits);
}

Outcome SharedMemory::all_reduce(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                                 const Limits& limits) {
  return reduce(how, in, out, count, -1, limits);
}

Outcome SharedMemory::reduce(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                             int root, const Limits& limits) {
  const std::size_t bytes = count * size_of(how.type);
  if (bytes * static_cast<std::size_t>(size()) <= one_phase_bytes_max)
    return reduce_at_once(how, in, out, count, root, limits);
  SlicedWork work{.how = how, .in = in, .out = out, .count = count, .root = root};
  if (bytes < direct_bytes_min) return SlicedReduction(slots_, work).run(limits);

  const bool writes = root < 0 || root == rank();
  Places places;
  const Offer offer{.in = {in, bytes},
                    .needs_in = true,
                    .out = {out, writes ? bytes : 0},
                    .needs_out = writes,
                    .staging = speeds_.next()};
  if (auto met = exchange_.run(slots_, offer, limits, places); !met.ok()) return met;
  if (places.direct) return reduce_direct(how, places, count, root, limits);
  if (bytes < stream_bytes_min) return SlicedReduction(slots_, work).run(limits);
  work.staging = places.staging;
  const auto begin = Clock::now();
  auto done = SlicedReduction(slots_, work).run(limits);
  speeds_.took(work.staging, bytes, Clock::now() - begin);
  return done;
}

Outcome SharedMemory::reduce_scatter(const Reduce& how, const std::byte* in, std::byte* out,
                                     std::size_t count, const Limits& limits) {
  const std::size_t element = size_of(how.type);
  const std::size_t bytes = count * element;
  const auto members = static_cast<std::size_t>(size());
  const Share what{.in = in, .blocks = members, .block_bytes = bytes, .granule = element};
  std::vector<const std::byte*> sources(members);
  return share(what, limits, [&](std::size_t at, std::size_t length, std::span<const Piece> pieces) {
    for (std::size_t m = 0; m < members; ++m) sources[m] = pieces[m].block(static_cast<std::size_t>(rank()));
    comm::reduce(how, out + at, sources, length / element, store_for(bytes * members));
  });
}

Outcome SharedMemory::all_gather(const std::byte* in, std::byte* out, std::size_t bytes,
                                 const Limits& limits) {
  const Store store = store_for(bytes * static_cast<std::size_t>(size()));
  return share({.in = in, .block_bytes = bytes}, limits,
               [&](std::size_t at, std::size_t length, std::span<const Piece> pieces) {
                 for (std::size_t m = 0; m < pieces.size(); ++m) {
                   copy_bytes(out + m * bytes + at, pieces[m].data, length, store);
                 }
               });
}

Outcome SharedMemory::broadcast(const std::byte* in, std::byte* out, std::size_t bytes, int root,
                                const Limits& limits) {
  const auto source = static_cast<std::size_t>(root);
  return share({.in = in, .block_bytes = bytes, .publisher = root, .consumes = root != rank()}, limits,
               [&](std::size_t at, std::size_t length, std::span<const Piece> pieces) {
                 copy_bytes(out + at, pieces[source].data, length, store_for(bytes));
               });
}

Outcome SharedMemory::all_to_all(const std::byte* in, std::byte* out, std::size_t bytes,
                                 const Limits& limits) {
  const auto members = static_cast<std::size_t>(size());
  const std::size_t total = bytes * members;
  const bool overlaps = in < out + total && out < in + total;
  return share({.in = in, .blocks = members, .block_bytes = bytes, .in_place = overlaps}, limits,
               [&](std::size_t at, std::size_t length, std::span<const Piece> pieces) {
                 for (std::size_t m = 0; m < members; ++m) {
                   copy_bytes(out + m * bytes + at, pieces[m].block(static_cast<std::size_t>(rank())), length,
                              store_for(total));
                 }
               });
}

Outcome SharedMemory::gather(const std::byte* in, std::byte* out, std::size_t bytes, int root,
                             const Limits& limits) {
  return share({.in = in, .block_bytes = bytes, .consumes = root == rank()}, limits,
               [&](std::size_t at, std::size_t length, std::span<const Piece> pieces) {
                 for (std::size_t m = 0; m < pieces.size(); ++m) {
                   copy_bytes(out + m * bytes + at, pieces[m].data, length);
                 }
               });
}

Outcome SharedMemory::scatter(const std::byte* in, std::byte* out, std::size_t bytes, int root,
                              const Limits& limits) {
  const auto members = static_cast<std::size_t>(size());
  return share({.in = in, .blocks = members, .block_bytes = bytes, .publisher = root}, limits,
               [&](std::size_t at, std::size_t length, std::span<const Piece> pieces) {
                 const Piece& source = pieces[static_cast<std::size_t>(root)];
                 copy_bytes(out + at, source.block(static_cast<std::size_t>(rank())), length);
               });
}

Outcome SharedMemory::barrier(const Limits& limits) {
  const std::uint32_t ticket = slots_.take_tickets();
  if (auto shown = slots_.show(ticket, limits, [](std::byte*) {}); !shown.ok()) return shown;
  return slots_.see_all(ticket, limits);
}

}  // namespace tutti::comm
