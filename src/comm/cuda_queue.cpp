#include "comm/cuda_queue.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "comm/ptx.hpp"

namespace tutti::comm {
namespace {

constexpr unsigned stream_non_blocking = 1;
constexpr unsigned event_without_timing = 2;
constexpr unsigned threads_of_block = 256;
constexpr unsigned blocks_max = 1024;

}  // namespace

CudaQueue::~CudaQueue() {
  if (event_ != nullptr) cuda::driver()->event_destroy(event_);
  if (stream_ != nullptr) cuda::driver()->stream_destroy(stream_);
}

// Above the caller's priority: what others wait for goes first, and a stream that waits for others never
// shares one of the device's lines of work with the streams that compute.
Result<> CudaQueue::open() {
  const cuda::Driver& driver = *cuda::driver();
  int least = 0;
  int greatest = 0;
  auto done = cuda::check(driver.stream_priorities(&least, &greatest), "the device has no priorities");
  if (done)
    done =
        cuda::check(driver.stream_create(&stream_, stream_non_blocking, greatest), "no stream can be made");
  if (done) done = cuda::check(driver.event_create(&event_, event_without_timing), "no event can be made");
  return done;
}

Result<> CudaQueue::begin_after(cuda::Event event) {
  return cuda::check(cuda::driver()->stream_wait_event(stream_, event, 0), "the stream cannot wait");
}

Result<> CudaQueue::begin_after_stream(cuda::Stream caller) {
  auto done = cuda::check(cuda::driver()->event_record(event_, caller), "the caller's stream has no place");
  return done ? begin_after(event_) : done;
}

// By a kernel where that can be: the device's copy engine is another line of work, and a change between the
// two costs more than the copy.
Result<> CudaQueue::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return {};
  const cuda::Pointer target = cuda::pointer(to);
  const cuda::Pointer source = cuda::pointer(from);
  if ((target | source | bytes) % copy_unit_bytes == 0)
    return copy_units(target, source, bytes / copy_unit_bytes);
  return cuda::check(cuda::driver()->copy(target, source, bytes, stream_), "device memory cannot be copied");
}

Result<> CudaQueue::copy_units(cuda::Pointer target, cuda::Pointer source, std::uint64_t count) {
  if (copy_kernel_ == nullptr) {
    auto loaded = load(copy_ptx(), "copy");
    if (!loaded) return std::move(loaded).error();
    copy_kernel_ = *loaded;
  }
  std::array<void*, 3> parameters{&target, &source, &count};
  return start(copy_kernel_, count, parameters.data());
}

Result<cuda::Function> CudaQueue::load(const std::string& text, const char* name) {
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  auto done = cuda::check(cuda::driver()->module_load(&module, text.c_str()), "the kernel cannot be loaded");
  if (done)
    done = cuda::check(cuda::driver()->module_function(&function, module, name), "the kernel is not there");
  if (!done) return std::move(done).error();
  return function;
}

Result<cuda::Function> CudaQueue::kernel(DataType type, Reduction reduction) {
  cuda::Function& known = kernels_[{type, reduction}];
  if (known != nullptr) return known;
  auto loaded = load(reduce_ptx(type, reduction), "reduce");
  if (loaded) known = *loaded;
  return loaded;
}

Result<> CudaQueue::start(cuda::Function function, std::size_t count, void** parameters) {
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::size_t>((count + threads_of_block - 1) / threads_of_block, 1, blocks_max));
  return cuda::check(
      cuda::driver()->launch(function, blocks, 1, 1, threads_of_block, 1, 1, 0, stream_, parameters, nullptr),
      "the kernel cannot be launched");
}

Result<> CudaQueue::reduce(const Reduce& how, std::byte* target, std::span<const std::byte* const> sources,
                           std::size_t count) {
  if (count == 0) return {};
  TUTTI_CHECK(sources.size() <= reduce_sources_max);
  auto function = kernel(how.type, how.reduction);
  if (!function) return std::move(function).error();
  std::array<cuda::Pointer, reduce_sources_max> table{};
  std::transform(sources.begin(), sources.end(), table.begin(),
                 [](const std::byte* source) { return cuda::pointer(source); });
  auto source_count = static_cast<std::uint32_t>(sources.size());
  cuda::Pointer target_at = cuda::pointer(target);
  std::uint64_t elements = count;
  std::uint64_t divide = how.divide_by;
  std::array<void*, 5> parameters{table.data(), &source_count, &target_at, &elements, &divide};
  return start(*function, count, parameters.data());
}

Result<> CudaQueue::flags(std::span<const FlagStep> steps) { return put_flags(stream_, steps); }

Result<> CudaQueue::put_flags(cuda::Stream stream, std::span<const FlagStep> steps) {
  std::array<cuda::MemoryStep, steps_max> all;
  TUTTI_CHECK(steps.size() <= all.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    all[i] = {.operation = steps[i].kind == FlagStep::Kind::wait ? cuda::MemoryStep::wait_value_32
                                                                 : cuda::MemoryStep::write_value_32,
              .address = cuda::pointer(steps[i].flag),
              .value = steps[i].value,
              .unused = 0,
              .flags = 0,
              .alias = 0,
              .reserved = 0};
  }
  return cuda::check(cuda::driver()->memory_steps(stream, static_cast<unsigned>(steps.size()), all.data(), 0),
                     "the stream cannot signal");
}

}  // namespace tutti::comm
