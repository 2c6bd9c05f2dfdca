// The other ranks of a model, reached through comm: shared memory between processes of a machine, NCCL or
// CUDA IPC between GPUs. Whoever dies or does not come is named in the error. One thread at a time.
#pragma once

#include <memory>

#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "serve/model/peers.hpp"

namespace tutti::serve::parallel {

// How long a rank waits for another in a step before it is said to hang.
inline constexpr Duration step_deadline = 30s;

// Meets the others; they all do.
Result<std::shared_ptr<Peers>> connect(comm::Options options);

}  // namespace tutti::serve::parallel
