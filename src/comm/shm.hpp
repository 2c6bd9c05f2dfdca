// Collectives between the ranks of one host, over memory that they share. One thread at a time.
//
// Each member owns a few slots in a common segment, and a number (`published`) that says how many of its
// tickets are out. A ticket is one chunk of one operation; all members count the same tickets in the same
// order. To take part a member copies its chunk into slot (ticket mod slots), advances its number, waits for
// the numbers of those it needs, and reads their slots. Nobody waits for readers: a slot comes round again
// only `slot_count` tickets later, and a member that has published so many more has long read what it wanted
// (room() checks it).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "comm/allocate.hpp"
#include "comm/outcome.hpp"
#include "comm/reduce.hpp"
#include "comm/segment.hpp"
#include "comm/signal.hpp"

namespace tutti::comm {

class SharedMemory {
 public:
  // Ranks of one group on one host; a chunk must have a cache line for each.
  static constexpr int members_max = 256;

  // Bytes of a segment for so many members.
  static std::size_t segment_bytes(int members);

  // `pids` of the members, in their order; the segment is mapped by all of them.
  SharedMemory(Segment segment, std::vector<pid_t> pids, int me, Patience patience);

  int size() const { return static_cast<int>(pids_.size()); }
  int rank() const { return me_; }

  Outcome all_reduce(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                     const Limits&);
  // The result goes to the root's `out`; the others' is not touched.
  Outcome reduce(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count, int root,
                 const Limits&);
  Outcome reduce_scatter(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                         const Limits&);
  Outcome all_gather(const std::byte* in, std::byte* out, std::size_t bytes, const Limits&);
  Outcome broadcast(const std::byte* in, std::byte* out, std::size_t bytes, int root, const Limits&);
  Outcome all_to_all(const std::byte* in, std::byte* out, std::size_t bytes, const Limits&);
  Outcome gather(const std::byte* in, std::byte* out, std::size_t bytes, int root, const Limits&);
  Outcome scatter(const std::byte* in, std::byte* out, std::size_t bytes, int root, const Limits&);
  Outcome barrier(const Limits&);

 private:
  static constexpr std::size_t slot_count = 8;
  static constexpr std::size_t slot_bytes = std::size_t{128} << 10;
  // The shared buffers of every member are worth looking for from here on.
  static constexpr std::size_t direct_bytes_min = std::size_t{256} << 10;

  struct Line;    // a member's signals
  struct Header;  // where a member's data lies, if it lies in shared buffers

  // A member's part of a chunk: block b begins at data + b * stride.
  struct Piece {
    const std::byte* data = nullptr;
    std::size_t stride = 0;
    const std::byte* block(std::size_t b) const { return data + b * stride; }
  };
  // Called for each chunk with its offset and length in a block, and every publisher's piece.
  using Consume = std::function<void(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces)>;

  // One phase: publishers show `blocks` blocks of `block_bytes` each, everyone reads what it wants. With as
  // many blocks as members, block m is for member m alone.
  struct Share {
    const std::byte* in = nullptr;
    std::size_t blocks = 1;
    std::size_t block_bytes = 0;
    int publisher = -1;       // -1: all members
    bool in_place = false;    // the output overlaps the input where others may read it
    std::size_t granule = 1;  // chunks are cut at multiples of this
    bool consumes = true;     // whether this member reads at all
  };
  Outcome share(const Share& what, const Limits& limits, const Consume& consume);
  Outcome share_staged(const Share& what, const Limits& limits, const Consume& consume);

  // One phase, for what is small: each member reduces everything itself.
  Outcome reduce_at_once(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count, int root,
                         const Limits& limits);

  // Two phases, for what is large: each member reduces a slice of each chunk, then copies the others' slices.
  // `root` -1: everyone gets the result.
  Outcome reduce_in_slices(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count,
                           int root, Store staging, const Limits& limits);

  // Shows where `in` and `out` lie, and learns it of all others. `direct` is the same answer on every member.
  struct Places {
    bool direct = false;
    Store staging = Store::cached;
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
  };
  Outcome exchange_places(std::span<const std::byte> in, bool need_in, std::span<std::byte> out,
                          bool need_out, const Limits& limits, Places& places);
  Outcome all_reduce_direct(const Reduce& how, const Places& places, std::size_t count, int root,
                            const Limits& limits);
  // Waits until every member has finished with what it reads or writes of the others' buffers.
  Outcome finish_direct(const Limits& limits);

  static std::size_t lines_bytes(int members);
  Line& line(int member) const;
  std::byte* slot(int member, std::uint32_t ticket) const;
  std::byte* result_slot(int member, std::uint32_t ticket) const;
  Outcome room(std::uint32_t ticket, const Limits& limits);
  void publish(std::uint32_t ticket, const Limits& limits);
  Outcome published(int member, std::uint32_t ticket, const Limits& limits);
  Outcome all_published(std::uint32_t ticket, const Limits& limits);
  Outcome await(Signal& signal, int member, std::uint32_t target, const Limits& limits) const;

  // Whether large chunks are better handed over through the caches or through memory depends on how near the
  // members' CPUs are, which may change while they run: both are tried, and the faster one is used. The first
  // member decides for all.
  class StagingSpeeds {
   public:
    Store next();
    void took(Store store, std::size_t bytes, Clock::duration time);

   private:
    static constexpr std::uint64_t try_other_every = 32;
    std::uint64_t operations_ = 0;
    std::array<double, 2> ns_per_mib_{};  // cached, stream; 0: not tried yet
  };

  Segment segment_;
  std::vector<pid_t> pids_;
  int me_;
  Patience patience_;
  std::uint32_t ticket_ = 0;         // the next one
  std::uint32_t sums_ = 0;           // chunks that were reduced in slices so far
  std::uint32_t finished_ = 0;       // direct operations so far
  std::vector<std::uint32_t> seen_;  // of each member's published number
  SharedMappings mappings_;
  StagingSpeeds speeds_;
};

}  // namespace tutti::comm
