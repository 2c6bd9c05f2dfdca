// A GPU's memory, the host's memory that it can reach, and its queues, each given back by whoever has it.
// Needs CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "base/result.hpp"

namespace tutti::serve::cuda {

// What CUDA said to a call, as a failure.
Result<> checked(cudaError_t status, const std::string& doing);

struct FreeDevice {
  void operator()(std::byte* data) const { static_cast<void>(cudaFree(data)); }
};
struct FreePinned {
  void operator()(std::byte* data) const { static_cast<void>(cudaFreeHost(data)); }
};
struct EndStream {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
};
struct EndEvent {
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
};
struct EndRecording {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
struct EndGraph {
  void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
};

using DeviceMemory = std::unique_ptr<std::byte, FreeDevice>;
using PinnedMemory = std::unique_ptr<std::byte, FreePinned>;
using OwnStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, EndStream>;
using OwnEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EndEvent>;
using OwnRecording = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, EndRecording>;
using OwnGraph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, EndGraph>;

// Zeros. `what` is for the message.
Result<DeviceMemory> reserve_device(std::size_t bytes, const std::string& what);
// Of the host, and reached by the device under the same address.
Result<PinnedMemory> reserve_pinned(std::size_t bytes, const std::string& what);
Result<OwnStream> make_stream();
// One that is only waited for, or one that knows its time.
Result<OwnEvent> make_event(bool is_timed = false);

}  // namespace tutti::serve::cuda
