#include "comm/slots.hpp"

#include "base/check.hpp"

namespace tutti::comm {
namespace {

constexpr std::size_t page_bytes = 4096;

}  // namespace

std::size_t Slots::lines_bytes(int members) {
  return (static_cast<std::size_t>(members) * sizeof(Line) + page_bytes - 1) / page_bytes * page_bytes;
}

std::size_t Slots::segment_bytes(int members) {
  return lines_bytes(members) + static_cast<std::size_t>(members) * 2 * slot_count * slot_bytes;
}

Slots::Slots(Segment segment, int members, int me, Patience patience)
    : segment_(std::move(segment)),
      me_(me),
      patience_(patience),
      seen_(static_cast<std::size_t>(members), 0) {
  TUTTI_CHECK(members <= members_max && segment_.size() >= segment_bytes(members));
}

Slots::Line& Slots::line(int member) const { return reinterpret_cast<Line*>(segment_.data())[member]; }

std::byte* Slots::slot(int member, std::uint32_t ticket) const {
  const std::size_t index = static_cast<std::size_t>(member) * 2 * slot_count + ticket % slot_count;
  return segment_.data() + lines_bytes(size()) + index * slot_bytes;
}

// Of two sums that share a slot, the tickets are at least as far apart as the sums: what makes a slot free
// for a ticket makes its sum's free too.
std::byte* Slots::sum_slot(int member, std::uint32_t sum) const {
  return slot(member, sum) + slot_count * slot_bytes;
}

std::uint32_t Slots::take_tickets(std::size_t count) {
  const std::uint32_t first = ticket_;
  ticket_ += static_cast<std::uint32_t>(count);
  return first;
}

std::uint32_t Slots::take_sums(std::size_t count) {
  const std::uint32_t first = sum_;
  sum_ += static_cast<std::uint32_t>(count);
  return first;
}

Outcome Slots::await(Signal& signal, int member, std::uint32_t target, const Limits& limits) const {
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
Outcome Slots::room(std::uint32_t ticket, const Limits& limits) {
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

void Slots::publish(std::uint32_t ticket, const Limits& limits) {
  Line& mine = line(me_);
  mine.descriptors[ticket % slot_count].store(limits.descriptor, std::memory_order_relaxed);
  mine.published.advance(ticket + 1);
}

Outcome Slots::see(int member, std::uint32_t ticket, const Limits& limits) {
  auto& seen = seen_[static_cast<std::size_t>(member)];
  Line& theirs = line(member);
  if (static_cast<std::int32_t>(seen - ticket) <= 0) {
    if (auto waited = await(theirs.published, member, ticket + 1, limits); !waited.ok()) return waited;
    seen = theirs.published.value.load(std::memory_order_acquire);
  }
  const auto descriptor = theirs.descriptors[ticket % slot_count].load(std::memory_order_relaxed);
  return descriptor == limits.descriptor ? Outcome{} : Outcome::mismatch(member);
}

Outcome Slots::see_all(std::uint32_t ticket, const Limits& limits) {
  for (int member = 0; member < size(); ++member) {
    if (member == me_) continue;
    if (auto there = see(member, ticket, limits); !there.ok()) return there;
  }
  return {};
}

void Slots::show_sum(std::uint32_t sum) { line(me_).reduced.advance(sum + 1); }

Outcome Slots::see_sum(int member, std::uint32_t sum, const Limits& limits) {
  return await(line(member).reduced, member, sum + 1, limits);
}

Outcome Slots::meet(const Limits& limits) {
  ++meetings_;
  line(me_).met.advance(meetings_);
  for (int member = 0; member < size(); ++member) {
    if (member == me_) continue;
    if (auto there = await(line(member).met, member, meetings_, limits); !there.ok()) return there;
  }
  return {};
}

}  // namespace tutti::comm
