// NCCL, opened at run time, for groups whose ranks have a GPU each. One thread at a time.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "comm/call.hpp"
#include "comm/cuda.hpp"

namespace tutti::comm {

class Nccl {
 public:
  using Id = std::array<char, 128>;

  // Whether the library is there.
  static bool available();
  // By one member; the others get it through the group.
  static Result<Id> make_id();
  // By all members at once, with their device's context current.
  static Result<std::unique_ptr<Nccl>> join(const Id& id, int size, int rank);
  ~Nccl();

  // Puts the operation on the stream.
  Result<> launch(const Call& call, cuda::Stream stream);
  // Makes what hangs in the device return, with an error.
  void abort();

 private:
  Nccl(void* communicator, int size, int rank) : communicator_(communicator), size_(size), rank_(rank) {}
  Result<> launch_blocks(const Call& call, cuda::Stream stream);

  void* communicator_;
  int size_;
  int rank_;
};

}  // namespace tutti::comm
