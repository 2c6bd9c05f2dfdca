// The memory that the ranks of one host share: what each of them shows to the others, in order. One thread at
// a time.
//
// Each member owns a few slots in a common segment, and a number (`published`) that says how many of its
// tickets are out. A ticket is one chunk of one operation; all members count the same tickets in the same
// order. To take part a member shows its chunk in slot (ticket mod slots), advances its number, waits for
// the numbers of those it needs, and reads their slots. Nobody waits for readers: a slot comes round again
// only `slot_count` tickets later, and a member that has published so many more has long read what it wanted
// (room() checks it).
//
// Beside them each member has as many slots for sums. A sum belongs to a ticket, and not every ticket has
// one: sums have a count of their own, because a number that stood still while others went round would lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/outcome.hpp"
#include "comm/segment.hpp"
#include "comm/signal.hpp"

namespace tutti::comm {

class Slots {
 public:
  // Ranks of one group on one host; a chunk must have a cache line for each.
  static constexpr int members_max = 256;
  static constexpr std::size_t slot_bytes = std::size_t{128} << 10;

  // Bytes of a segment for so many members.
  static std::size_t segment_bytes(int members);

  // The segment is mapped by all members.
  Slots(Segment segment, int members, int me, Patience patience);

  int size() const { return static_cast<int>(seen_.size()); }
  int me() const { return me_; }

  // The first of so many tickets, or of so many sums.
  std::uint32_t take_tickets(std::size_t count = 1);
  std::uint32_t take_sums(std::size_t count);

  // Waits until nobody reads the slot any more, has it filled by `fill(slot)`, and shows it.
  template <class Fill>
  Outcome show(std::uint32_t ticket, const Limits& limits, const Fill& fill) {
    if (auto free = room(ticket, limits); !free.ok()) return free;
    fill(slot(me_, ticket));
    publish(ticket, limits);
    return {};
  }
  // Waits until a member shows it; then its slot may be read. The others' at this ticket belong to the same
  // operation.
  Outcome see(int member, std::uint32_t ticket, const Limits& limits);
  Outcome see_all(std::uint32_t ticket, const Limits& limits);
  const std::byte* shown(int member, std::uint32_t ticket) const { return slot(member, ticket); }

  // The same for sums. There is room for one when its ticket was shown.
  std::byte* own_sum(std::uint32_t sum) const { return sum_slot(me_, sum); }
  void show_sum(std::uint32_t sum);
  Outcome see_sum(int member, std::uint32_t sum, const Limits& limits);
  const std::byte* shown_sum(int member, std::uint32_t sum) const { return sum_slot(member, sum); }

  // Waits until every member has come here.
  Outcome meet(const Limits& limits);

 private:
  static constexpr std::size_t slot_count = 8;

  // A cache line for each thing that others wait for, so that waiting for one does not disturb the other.
  struct Line {
    alignas(64) Signal published;
    // Of the last tickets, in the slot of each; written before `published` moves past it, and fetched with
    // it.
    std::array<std::atomic<std::uint32_t>, slot_count> descriptors;
    alignas(64) Signal reduced;
    alignas(64) Signal met;
  };

  static std::size_t lines_bytes(int members);
  Line& line(int member) const;
  std::byte* slot(int member, std::uint32_t ticket) const;
  std::byte* sum_slot(int member, std::uint32_t sum) const;
  Outcome room(std::uint32_t ticket, const Limits& limits);
  void publish(std::uint32_t ticket, const Limits& limits);
  Outcome await(Signal& signal, int member, std::uint32_t target, const Limits& limits) const;

  Segment segment_;
  int me_;
  Patience patience_;
  std::uint32_t ticket_ = 0;         // the next one
  std::uint32_t sum_ = 0;            // the next one
  std::uint32_t meetings_ = 0;       // so far
  std::vector<std::uint32_t> seen_;  // of each member's published number
};

}  // namespace tutti::comm
