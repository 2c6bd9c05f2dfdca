// One call of a collective, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/types.hpp"

namespace tutti::comm {

struct Call {
  Operation operation = Operation::barrier;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements of one rank's share: of the sum, of a block, of the message
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
  int root = -1;  // of rooted operations; the peer of send and recv

  std::size_t bytes() const { return count * size_of(type); }

  // The same number on every rank of one and the same operation, and hardly ever elsewhere.
  std::uint32_t fingerprint() const {
    // A send is met by a recv.
    const Operation kind = operation == Operation::recv ? Operation::send : operation;
    const bool paired = kind == Operation::send;
    std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
    for (const std::uint64_t part :
         {static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(type),
          static_cast<std::uint64_t>(reduction), static_cast<std::uint64_t>(paired ? 0 : root),
          static_cast<std::uint64_t>(count)}) {
      hash = (hash ^ part) * 0xff51afd7ed558ccdULL;
      hash ^= hash >> 32;
    }
    return static_cast<std::uint32_t>(hash) | 1U;
  }
};

}  // namespace tutti::comm
