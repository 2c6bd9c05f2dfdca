// A CUDA stream as a queue of work, with the kernels that add up. The stream's context must be current. One
// thread at a time.
#pragma once

#include <map>
#include <utility>

#include "comm/cuda.hpp"
#include "comm/device_queue.hpp"

namespace tutti::comm {

class CudaQueue : public DeviceQueue {
 public:
  CudaQueue() = default;
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  Result<> open();
  cuda::Stream stream() const { return stream_; }

  // What is put here from now on begins after the event, or after what is on the caller's stream now.
  Result<> begin_after(cuda::Event event);
  Result<> begin_after_stream(cuda::Stream caller);

  Result<> copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  Result<> reduce(const Reduce& how, std::byte* target, std::span<const std::byte* const> sources,
                  std::size_t count) override;
  Result<> flags(std::span<const FlagStep> steps) override;
  // The same on a stream of the caller's.
  static Result<> put_flags(cuda::Stream stream, std::span<const FlagStep> steps);

 private:
  static Result<cuda::Function> load(const std::string& text, const char* name);
  Result<cuda::Function> kernel(DataType type, Reduction reduction);
  Result<> copy_units(cuda::Pointer target, cuda::Pointer source, std::uint64_t count);
  Result<> start(cuda::Function function, std::size_t count, void** parameters);

  cuda::Stream stream_ = nullptr;
  cuda::Event event_ = nullptr;
  cuda::Function copy_kernel_ = nullptr;
  std::map<std::pair<DataType, Reduction>, cuda::Function> kernels_;
};

}  // namespace tutti::comm
