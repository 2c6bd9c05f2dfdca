#include "serve/cuda/device.hpp"

namespace tutti::serve::cuda {

Result<> checked(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return {};
  auto error = failed(cudaGetErrorString(status)).within(doing + " on the GPU");
  // What is left from one call is not taken for the failure of the next.
  static_cast<void>(cudaGetLastError());
  return error;
}

Result<DeviceMemory> reserve_device(std::size_t bytes, const std::string& what) {
  void* data = nullptr;
  const std::string doing = "reserving " + std::to_string(bytes >> 20U) + " MiB for " + what;
  if (auto done = checked(cudaMalloc(&data, bytes), doing); !done) return std::move(done).error();
  DeviceMemory memory(static_cast<std::byte*>(data));
  if (auto done = checked(cudaMemset(data, 0, bytes), doing); !done) return std::move(done).error();
  return memory;
}

Result<PinnedMemory> reserve_pinned(std::size_t bytes, const std::string& what) {
  void* data = nullptr;
  auto done = checked(cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
                      "reserving " + std::to_string(bytes >> 10U) + " KiB of the host for " + what);
  if (!done) return std::move(done).error();
  return PinnedMemory(static_cast<std::byte*>(data));
}

Result<OwnStream> make_stream() {
  cudaStream_t stream = nullptr;
  auto done = checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a queue");
  if (!done) return std::move(done).error();
  return OwnStream(stream);
}

Result<OwnEvent> make_event(bool is_timed) {
  cudaEvent_t event = nullptr;
  auto done = checked(cudaEventCreateWithFlags(&event, is_timed ? cudaEventDefault : cudaEventDisableTiming),
                      "making an event");
  if (!done) return std::move(done).error();
  return OwnEvent(event);
}

}  // namespace tutti::serve::cuda
