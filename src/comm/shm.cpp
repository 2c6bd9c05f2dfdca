#include "comm/shm.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.hpp"

namespace tutti::comm {
namespace {

// Data beyond this no longer fits into the caches together with its peers': it is written around them.
constexpr std::size_t stream_bytes_min = std::size_t{8} << 20;
// Up to here, for all members together, every member reduces everything itself: one wait instead of two.
constexpr std::size_t one_phase_bytes_max = std::size_t{64} << 10;
constexpr std::size_t line_bytes = 64;

std::size_t round_up(std::size_t value, std::size_t granule) {
  return (value + granule - 1) / granule * granule;
}

Store store_for(std::size_t bytes) { return bytes >= stream_bytes_min ? Store::stream : Store::cached; }

}  // namespace

Store SharedMemory::StagingSpeeds::next() {
  ++operations_;
  const Store better = ns_per_mib_[1] < ns_per_mib_[0] ? Store::stream : Store::cached;
  const Store other = better == Store::stream ? Store::cached : Store::stream;
  const bool unknown = ns_per_mib_[0] == 0 || ns_per_mib_[1] == 0;
  if (unknown) return ns_per_mib_[1] == 0 ? Store::stream : Store::cached;
  return operations_ % try_other_every == 0 ? other : better;
}

void SharedMemory::StagingSpeeds::took(Store store, std::size_t bytes, Clock::duration time) {
  const double now =
      std::chrono::duration<double, std::nano>(time).count() / (static_cast<double>(bytes) / (1 << 20));
  double& known = ns_per_mib_[store == Store::stream ? 1 : 0];
  // A change of the machine shows at the next try; a single late peer does not turn the choice for long.
  known = known == 0 ? now : (known + now) / 2;
}

// A cache line for each thing that others wait for, so that waiting for one does not disturb the other.
struct SharedMemory::Line {
  alignas(64) Signal published;
  // Of the last tickets, in the slot of each; written before `published` moves past it, and fetched with it.
  std::array<std::atomic<std::uint32_t>, slot_count> descriptors;
  alignas(64) Signal reduced;
  alignas(64) Signal finished;
};

struct SharedMemory::Header {
  SharedPlace in;
  SharedPlace out;
  Store staging = Store::cached;  // what the first member wants for this operation
};

std::size_t SharedMemory::lines_bytes(int members) {
  return round_up(static_cast<std::size_t>(members) * sizeof(Line), 4096);
}

std::size_t SharedMemory::segment_bytes(int members) {
  return lines_bytes(members) + static_cast<std::size_t>(members) * 2 * slot_count * slot_bytes;
}

SharedMemory::SharedMemory(Segment segment, std::vector<pid_t> pids, int me, Patience patience)
    : segment_(std::move(segment)),
      pids_(std::move(pids)),
      me_(me),
      patience_(patience),
      seen_(pids_.size(), 0) {
  TUTTI_CHECK(size() <= members_max && segment_.size() >= segment_bytes(size()));
}

SharedMemory::Line& SharedMemory::line(int member) const {
  return reinterpret_cast<Line*>(segment_.data())[member];
}

std::byte* SharedMemory::slot(int member, std::uint32_t ticket) const {
  const std::size_t index = static_cast<std::size_t>(member) * 2 * slot_count + ticket % slot_count;
  return segment_.data() + lines_bytes(size()) + index * slot_bytes;
}

std::byte* SharedMemory::result_slot(int member, std::uint32_t ticket) const {
  return slot(member, ticket) + slot_count * slot_bytes;
}

Outcome SharedMemory::await(Signal& signal, int member, std::uint32_t target, const Limits& limits) const {
  switch (wait_for(signal, target, patience_, limits.deadline, *limits.fault)) {
    case Wait::reached:
      return {};
    case Wait::late:
      return Outcome::late(member);
    case Wait::fault:
      return Outcome::fault();
  }
  return {};
}

// A member publishes ticket i before it reduces i - 1 and copies i - 2, so one that has published v tickets
// has read all up to v - 4 for certain.
Outcome SharedMemory::room(std::uint32_t ticket, const Limits& limits) {
  constexpr std::uint32_t behind = slot_count - 4;
  for (int member = 0; member < size(); ++member) {
    if (member == me_) continue;
    auto& seen = seen_[static_cast<std::size_t>(member)];
    if (static_cast<std::int32_t>(seen + behind - ticket) >= 0) continue;
    Signal& signal = line(member).published;
    if (auto waited = await(signal, member, ticket - behind, limits); !waited.ok()) return waited;
    seen = signal.value.load(std::memory_order_acquire);
  }
  return {};
}

void SharedMemory::publish(std::uint32_t ticket, const Limits& limits) {
  Line& mine = line(me_);
  mine.descriptors[ticket % slot_count].store(limits.descriptor, std::memory_order_relaxed);
  mine.published.advance(ticket + 1);
}

Outcome SharedMemory::published(int member, std::uint32_t ticket, const Limits& limits) {
  auto& seen = seen_[static_cast<std::size_t>(member)];
  Line& theirs = line(member);
  if (static_cast<std::int32_t>(seen - ticket) <= 0) {
    if (auto waited = await(theirs.published, member, ticket + 1, limits); !waited.ok()) return waited;
    seen = theirs.published.value.load(std::memory_order_acquire);
  }
  const auto descriptor = theirs.descriptors[ticket % slot_count].load(std::memory_order_relaxed);
  return descriptor == limits.descriptor ? Outcome{} : Outcome::mismatch(member);
}

Outcome SharedMemory::all_published(std::uint32_t ticket, const Limits& limits) {
  for (int member = 0; member < size(); ++member) {
    if (member == me_) continue;
    if (auto there = published(member, ticket, limits); !there.ok()) return there;
  }
  return {};
}

Outcome SharedMemory::share(const Share& what, const Limits& limits, const Consume& consume) {
  const std::size_t bytes = what.blocks * what.block_bytes;
  const bool publishes = what.publisher < 0 || what.publisher == me_;
  if (bytes >= direct_bytes_min) {
    Places places;
    // What will be overwritten while others read it is shown as memory that they cannot reach.
    const std::span<const std::byte> shown(what.in, publishes && !what.in_place ? bytes : 0);
    if (auto met = exchange_places(shown, publishes, {}, false, limits, places); !met.ok()) return met;
    if (places.direct) {
      std::vector<Piece> pieces(pids_.size());
      for (std::size_t m = 0; m < pieces.size(); ++m) pieces[m] = {places.in[m], what.block_bytes};
      if (what.consumes) consume(0, what.block_bytes, pieces);
      return finish_direct(limits);
    }
  }
  return share_staged(what, limits, consume);
}

Outcome SharedMemory::share_staged(const Share& what, const Limits& limits, const Consume& consume) {
  const bool publishes = what.publisher < 0 || what.publisher == me_;
  const std::size_t chunk = std::max(slot_bytes / what.blocks / line_bytes * line_bytes, what.granule);
  TUTTI_CHECK(chunk * what.blocks <= slot_bytes && chunk % what.granule == 0);
  const std::size_t chunks = std::max<std::size_t>(1, (what.block_bytes + chunk - 1) / chunk);
  const auto members = static_cast<std::size_t>(size());
  const bool personal = what.blocks == members && members > 1;
  const std::uint32_t first = ticket_;
  ticket_ += static_cast<std::uint32_t>(chunks);
  std::vector<Piece> pieces(members);
  const auto length = [&](std::size_t i) {
    return std::min(chunk, what.block_bytes - std::min(i * chunk, what.block_bytes));
  };

  for (std::size_t i = 0; i <= chunks; ++i) {
    if (i < chunks) {
      const std::uint32_t ticket = first + static_cast<std::uint32_t>(i);
      if (auto free = room(ticket, limits); !free.ok()) return free;
      if (publishes) {
        std::byte* const place = slot(me_, ticket);
        for (std::size_t b = 0; b < what.blocks; ++b) {
          if (personal && b == static_cast<std::size_t>(me_)) continue;
          copy_bytes(place + b * chunk, what.in + b * what.block_bytes + i * chunk, length(i));
        }
      }
      publish(ticket, limits);
    }
    if (i == 0 || !what.consumes) continue;
    const std::size_t at = i - 1;
    const std::uint32_t ticket = first + static_cast<std::uint32_t>(at);
    for (std::size_t m = 0; m < members; ++m) {
      const int member = static_cast<int>(m);
      if (member == me_) {
        pieces[m] = {what.in + at * chunk, what.block_bytes};
      } else if (what.publisher < 0 || what.publisher == member) {
        if (auto there = published(member, ticket, limits); !there.ok()) return there;
        pieces[m] = {slot(member, ticket), chunk};
      }
    }
    consume(at * chunk, length(at), pieces);
  }
  return {};
}

Outcome SharedMemory::exchange_places(std::span<const std::byte> in, bool need_in, std::span<std::byte> out,
                                      bool need_out, const Limits& limits, Places& places) {
  const std::uint32_t ticket = ticket_++;
  if (auto free = room(ticket, limits); !free.ok()) return free;
  Header mine;
  // An id of 0 with bytes of 0 means: nothing to show, and nothing in the way of the direct road.
  const auto place = [](std::span<const std::byte> piece, bool needed) {
    SharedPlace none;
    none.buffer_bytes = needed ? 1 : 0;
    return needed && !piece.empty() ? find_shared(piece).value_or(none) : none;
  };
  mine.in = place(in, need_in);
  mine.out = place(out, need_out);
  mine.staging = speeds_.next();
  std::memcpy(slot(me_, ticket), &mine, sizeof mine);
  publish(ticket, limits);
  if (auto there = all_published(ticket, limits); !there.ok()) return there;

  const auto members = static_cast<std::size_t>(size());
  std::vector<Header> headers(members);
  places.direct = true;
  for (std::size_t m = 0; m < members; ++m) {
    std::memcpy(&headers[m], slot(static_cast<int>(m), ticket), sizeof(Header));
    for (const SharedPlace& shown : {headers[m].in, headers[m].out}) {
      if (shown.id == 0 && shown.buffer_bytes != 0) places.direct = false;
    }
  }
  places.staging = headers.front().staging;
  if (!places.direct) return {};
  places.in.resize(members);
  places.out.resize(members);
  for (std::size_t m = 0; m < members; ++m) {
    const auto reach = [&](const SharedPlace& shown) -> Result<std::byte*> {
      if (shown.id == 0) return static_cast<std::byte*>(nullptr);
      return mappings_.reach(pids_[m], shown,
                             shown.buffer_bytes - std::min(shown.buffer_bytes, shown.offset));
    };
    if (static_cast<int>(m) == me_) {
      places.in[m] = in.data();
      places.out[m] = out.data();
      continue;
    }
    auto their_in = reach(headers[m].in);
    if (!their_in) return Outcome::failed(their_in.error().text());
    auto their_out = reach(headers[m].out);
    if (!their_out) return Outcome::failed(their_out.error().text());
    places.in[m] = *their_in;
    places.out[m] = *their_out;
  }
  return {};
}

Outcome SharedMemory::finish_direct(const Limits& limits) {
  ++finished_;
  line(me_).finished.advance(finished_);
  for (int member = 0; member < size(); ++member) {
    if (member == me_) continue;
    if (auto there = await(line(member).finished, member, finished_, limits); !there.ok()) return there;
  }
  return {};
}

// Each member reduces its slice straight from the others' buffers and writes the result straight into them.
Outcome SharedMemory::all_reduce_direct(const Reduce& how, const Places& places, std::size_t count, int root,
                                        const Limits& limits) {
  const std::size_t element = size_of(how.type);
  const auto members = static_cast<std::size_t>(size());
  const std::size_t slice = round_up((count * element + members - 1) / members, line_bytes);
  const std::size_t begin = std::min(count * element, slice * static_cast<std::size_t>(me_));
  const std::size_t end = std::min(count * element, begin + slice);
  const Store store = store_for(count * element * members);
  std::vector<const std::byte*> sources(members);
  std::vector<std::byte*> targets;
  for (std::size_t m = 0; m < members; ++m) {
    sources[m] = places.in[m] + begin;
    if (root < 0 || root == static_cast<int>(m)) targets.push_back(places.out[m] + begin);
  }
  comm::reduce(how, std::span<std::byte* const>(targets), sources, (end - begin) / element, store);
  return finish_direct(limits);
}

Outcome SharedMemory::reduce_at_once(const Reduce& how, const std::byte* in, std::byte* out,
                                     std::size_t count, int root, const Limits& limits) {
  const std::uint32_t ticket = ticket_++;
  if (auto free = room(ticket, limits); !free.ok()) return free;
  copy_bytes(slot(me_, ticket), in, count * size_of(how.type));
  publish(ticket, limits);
  if (root >= 0 && root != me_) return {};
  std::array<const std::byte*, members_max> sources;
  for (int member = 0; member < size(); ++member) {
    sources[static_cast<std::size_t>(member)] = member == me_ ? in : slot(member, ticket);
    if (member == me_) continue;
    if (auto there = published(member, ticket, limits); !there.ok()) return there;
  }
  comm::reduce(how, out, {sources.data(), pids_.size()}, count);
  return {};
}

Outcome SharedMemory::reduce_in_slices(const Reduce& how, const std::byte* in, std::byte* out,
                                       std::size_t count, int root, Store staging, const Limits& limits) {
  const std::size_t bytes = count * size_of(how.type);
  const auto members = static_cast<std::size_t>(size());
  const auto me = static_cast<std::size_t>(me_);
  const std::size_t slice_max = slot_bytes / members / line_bytes * line_bytes;
  const std::size_t chunk = slice_max * members;
  const std::size_t chunks = (bytes + chunk - 1) / chunk;
  const bool wants = root < 0 || root == me_;
  const Store store = store_for(bytes);
  const std::uint32_t first = ticket_;
  ticket_ += static_cast<std::uint32_t>(chunks);

  // Sums have a count of their own: a number that stood still while others went round would lie.
  const std::uint32_t sums_before = sums_;
  sums_ += static_cast<std::uint32_t>(chunks);

  // Slice m of chunk i: where it begins in a buffer, and how long it is.
  const auto slice_of = [&](std::size_t i, std::size_t m) {
    const std::size_t begin = i * chunk;
    const std::size_t length = std::min(chunk, bytes - begin);
    const std::size_t each = std::min(slice_max, round_up((length + members - 1) / members, line_bytes));
    const std::size_t from = std::min(length, m * each);
    return std::pair(begin + from, std::min(each, length - from));
  };

  std::vector<const std::byte*> sources(members);
  for (std::size_t i = 0; i < chunks + 2; ++i) {
    if (i < chunks) {
      const std::uint32_t ticket = first + static_cast<std::uint32_t>(i);
      if (auto free = room(ticket, limits); !free.ok()) return free;
      for (std::size_t m = 0; m < members; ++m) {
        if (m == me) continue;
        const auto [at, length] = slice_of(i, m);
        copy_bytes(slot(me_, ticket) + m * slice_max, in + at, length, staging);
      }
      publish(ticket, limits);
    }
    if (i >= 1 && i - 1 < chunks) {
      const std::uint32_t ticket = first + static_cast<std::uint32_t>(i - 1);
      if (auto there = all_published(ticket, limits); !there.ok()) return there;
      const auto [at, length] = slice_of(i - 1, me);
      for (std::size_t m = 0; m < members; ++m) {
        sources[m] = m == me ? in + at : slot(static_cast<int>(m), ticket) + me * slice_max;
      }
      std::byte* const result = result_slot(me_, ticket);
      const std::array<std::byte*, 2> targets{result, wants ? out + at : nullptr};
      // Around the caches both copies are written at once; else the sum is shown first, and copied from the
      // cache.
      const bool both = wants && staging == Store::stream;
      comm::reduce(how, std::span(targets).first(both ? 2 : 1), sources, length / size_of(how.type), staging);
      line(me_).reduced.advance(sums_before + static_cast<std::uint32_t>(i));
      if (wants && !both) copy_bytes(out + at, result, length, store);
    }
    if (i >= 2 && wants) {
      const std::uint32_t ticket = first + static_cast<std::uint32_t>(i - 2);
      for (std::size_t m = 0; m < members; ++m) {
        if (m == me) continue;
        const int member = static_cast<int>(m);
        if (auto there =
                await(line(member).reduced, member, sums_before + static_cast<std::uint32_t>(i - 1), limits);
            !there.ok())
          return there;
        const auto [at, length] = slice_of(i - 2, m);
        copy_bytes(out + at, result_slot(member, ticket), length, store);
      }
    }
  }
  return {};
}

Outcome SharedMemory::all_reduce(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                                 const Limits& limits) {
  return reduce(how, in, out, count, -1, limits);
}

Outcome SharedMemory::reduce(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                             int root, const Limits& limits) {
  const std::size_t element = size_of(how.type);
  const std::size_t bytes = count * element;
  if (bytes * pids_.size() <= one_phase_bytes_max) return reduce_at_once(how, in, out, count, root, limits);
  if (bytes >= direct_bytes_min) {
    Places places;
    const bool writes = root < 0 || root == me_;
    const std::span<std::byte> target(out, writes ? bytes : 0);
    if (auto met = exchange_places({in, bytes}, true, target, writes, limits, places); !met.ok()) return met;
    if (places.direct) return all_reduce_direct(how, places, count, root, limits);
    if (bytes >= stream_bytes_min) {
      const auto begin = Clock::now();
      auto done = reduce_in_slices(how, in, out, count, root, places.staging, limits);
      speeds_.took(places.staging, bytes, Clock::now() - begin);
      return done;
    }
  }
  return reduce_in_slices(how, in, out, count, root, Store::cached, limits);
}

Outcome SharedMemory::reduce_scatter(const Reduce& how, const std::byte* in, std::byte* out,
                                     std::size_t count, const Limits& limits) {
  const std::size_t element = size_of(how.type);
  const std::size_t bytes = count * element;
  const auto members = static_cast<std::size_t>(size());
  const Share what{.in = in, .blocks = members, .block_bytes = bytes, .granule = element};
  std::vector<const std::byte*> sources(members);
  return share(what, limits, [&](std::size_t at, std::size_t length, std::span<const Piece> pieces) {
    for (std::size_t m = 0; m < members; ++m) sources[m] = pieces[m].block(static_cast<std::size_t>(me_));
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
  return share({.in = in, .block_bytes = bytes, .publisher = root, .consumes = root != me_}, limits,
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
                   copy_bytes(out + m * bytes + at, pieces[m].block(static_cast<std::size_t>(me_)), length,
                              store_for(total));
                 }
               });
}

Outcome SharedMemory::gather(const std::byte* in, std::byte* out, std::size_t bytes, int root,
                             const Limits& limits) {
  return share({.in = in, .block_bytes = bytes, .consumes = root == me_}, limits,
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
                 copy_bytes(out + at, source.block(static_cast<std::size_t>(me_)), length);
               });
}

Outcome SharedMemory::barrier(const Limits& limits) {
  const std::uint32_t ticket = ticket_++;
  if (auto free = room(ticket, limits); !free.ok()) return free;
  publish(ticket, limits);
  return all_published(ticket, limits);
}

}  // namespace tutti::comm
