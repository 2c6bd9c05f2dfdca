// NCCL, opened at run time, for groups whose ranks have a GPU each. Its communicators are made without
// blocking, so that the deadlines are ours. One thread at a time, except where it says otherwise.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.hpp"
#include "comm/call.hpp"
#include "comm/cuda.hpp"
#include "comm/outcome.hpp"

namespace tutti::comm {

class Nccl {
 public:
  using Id = std::array<char, 128>;

  // Whether the library is there.
  static bool available();
  // By one member; the others get it through the group.
  static Result<Id> make_id();
  // By all members at once, with their device's context current.
  static Outcome join(const Id& id, int size, int rank, const Limits& limits, std::unique_ptr<Nccl>& joined);
  ~Nccl();

  // Puts the operation on the stream. The first ones may wait for the others, within the limits.
  Outcome launch(const Call& call, cuda::Stream stream, const Limits& limits);

  // Any thread. What went wrong since the launches; "" if nothing has.
  std::string problem();
  // Any thread. Makes what hangs in the device return, with an error.
  void abort();

 private:
  Nccl(int size, int rank) : size_(size), rank_(rank) {}
  Outcome settle(const Limits& limits);
  Result<> put(const Call& call, cuda::Stream stream);
  Result<> put_blocks(const Call& call, cuda::Stream stream);

  std::mutex mutex_;  // of the communicator
  void* communicator_ = nullptr;
  int size_;
  int rank_;
};

}  // namespace tutti::comm
