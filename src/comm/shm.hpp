// Collectives between the ranks of one host, over memory that they share. One thread at a time.
//
// Small data goes through slots at once, large data through slots in chunks, and what lies in shared buffers
// goes directly: slots.hpp, slices.hpp and places.hpp are the parts, and this says which operation takes
// which way.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/outcome.hpp"
#include "comm/places.hpp"
#include "comm/reduce.hpp"
#include "comm/slots.hpp"
#include "comm/staging.hpp"

namespace tutti::comm {

class SharedMemory {
 public:
  static constexpr int members_max = Slots::members_max;

  // Bytes of a segment for so many members.
  static std::size_t segment_bytes(int members) { return Slots::segment_bytes(members); }

  // `pids` of the members, in their order; the segment is mapped by all of them.
  SharedMemory(Segment segment, const std::vector<pid_t>& pids, int me, Patience patience);

  int size() const { return slots_.size(); }
  int rank() const { return slots_.me(); }

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
  // The shared buffers of every member are worth looking for from here on.
  static constexpr std::size_t direct_bytes_min = std::size_t{256} << 10;

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
    bool published_by(int member) const { return publisher < 0 || publisher == member; }
  };
  class StagedShare;  // through slots
  Outcome share(const Share& what, const Limits& limits, const Consume& consume);

  // For what is small: each member reduces everything itself, after one wait.
  Outcome reduce_at_once(const Reduce& how, const std::byte* in, std::byte* out, std::size_t count, int root,
                         const Limits& limits);
  // Each member reduces its slice straight from the others' buffers and writes the result straight into them.
  Outcome reduce_direct(const Reduce& how, const Places& places, std::size_t count, int root,
                        const Limits& limits);

  Slots slots_;
  PlaceExchange exchange_;
  StagingSpeeds speeds_;
};

}  // namespace tutti::comm
