// The port to the other ranks of a model that several compute together: each has a part of every layer, and
// what they compute of it is added up. All ranks call the same, in the same order. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace tutti::serve {

class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;

  virtual int rank() const = 0;
  virtual int count() const = 0;

  // Adds up the numbers of all ranks, in place: the same bits on each.
  virtual Result<> sum(float* numbers, std::size_t count) = 0;
  // On rank 0, `all` holds the numbers of each rank afterwards, one behind the other.
  virtual Result<> gather(const float* numbers, float* all, std::size_t count) = 0;
  // The least of what the ranks say. Waits for ranks that are still loading.
  virtual Result<std::int64_t> least(std::int64_t number) = 0;

  // Numbers that lie on a device are those that this queue of it has come to, and are there for what it does
  // next.
  virtual void use_queue(void* stream) = 0;
  // Whether what was computed on a device can be believed: asked when the queue has come to its end.
  virtual Result<> check() const = 0;
};

}  // namespace tutti::serve
