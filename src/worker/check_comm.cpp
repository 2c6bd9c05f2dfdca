#include "worker/check_comm.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/clock/clock.hpp"
#include "comm/communicator.hpp"

namespace tutti::worker {
namespace {

using comm::Communicator;
using comm::DataType;
using comm::Reduction;

struct Type {
  DataType type;
  at::ScalarType scalar;
};
constexpr std::array types{Type{DataType::f32, at::kFloat}, Type{DataType::f64, at::kDouble},
                           Type{DataType::f16, at::kHalf},  Type{DataType::bf16, at::kBFloat16},
                           Type{DataType::i32, at::kInt},   Type{DataType::i64, at::kLong},
                           Type{DataType::u8, at::kByte}};

at::Device device_of_rank() {
  const int count = at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().getNumGPUs()) : 0;
  if (count == 0) return at::kCPU;
  const char* const local = std::getenv("LOCAL_RANK");
  return {at::kCUDA, static_cast<at::DeviceIndex>((local != nullptr ? std::atoi(local) : 0) % count)};
}

class Checker {
 public:
  Checker(Communicator& world, at::Device device) : world_(world), device_(device) {}

  Result<> check_all() {
    for (const Type& type : types) {
      for (const std::int64_t count : {1, 1001, 300'007}) {
        if (auto done = check_reductions(type, count); !done) return done;
        if (auto done = check_moves(type, count); !done) return done;
      }
    }
    return {};
  }

  // More than fits into staging memory at once.
  Result<> check_large() {
    const Type type = types.front();
    constexpr std::int64_t count = 18'000'001;
    const int root = world_.size() - 1;
    auto data = on_device(data_of(world_.rank(), count, type.scalar));
    auto done =
        world_.all_reduce(data.data_ptr(), data.data_ptr(), size(count), type.type, Reduction::sum).wait();
    if (done) done = compare("all_reduce", type, data, reduced(Reduction::sum, count, type.scalar));
    data = on_device(data_of(world_.rank(), count, type.scalar));
    if (done) done = world_.broadcast(data.data_ptr(), size(count), type.type, root).wait();
    if (done) done = compare("broadcast", type, data, data_of(root, count, type.scalar));
    if (done) done = check_scattered_sum(type, count / world_.size());
    return done;
  }

  // Seconds that a call of an all-reduce of so many f32 takes of the host: the median of some hundred. The
  // device may not fall behind by more than its queue holds, or the host would wait for that.
  Result<double> time_call(std::int64_t count) {
    constexpr int rounds = 50;
    constexpr int calls = 8;
    auto data = at::zeros({count}, at::TensorOptions(device_).dtype(at::kFloat));
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      for (int call = 0; call < calls; ++call) {
        const auto begin = SteadyClock::now();
        auto done =
            world_.all_reduce(data.data_ptr(), data.data_ptr(), size(count), DataType::f32, Reduction::sum)
                .wait();
        times.push_back(seconds_since(begin));
        if (!done) return std::move(done).error();
      }
      synchronize();
    }
    std::sort(times.begin(), times.end());
    double median = times[times.size() / 2];
    auto done = world_.all_reduce(&median, &median, 1, DataType::f64, Reduction::max).wait();
    if (!done) return std::move(done).error();
    return median;
  }

  // Seconds of one all-reduce of so many f32.
  Result<double> time_all_reduce(std::int64_t count) {
    auto data = at::zeros({count}, at::TensorOptions(device_).dtype(at::kFloat));
    double best = 1e9;
    for (int round = 0; round < 10; ++round) {
      if (auto met = world_.barrier().wait(); !met) return std::move(met).error();
      const auto begin = SteadyClock::now();
      auto done =
          world_.all_reduce(data.data_ptr(), data.data_ptr(), size(count), DataType::f32, Reduction::sum)
              .wait();
      if (!done) return std::move(done).error();
      synchronize();
      best = std::min(best, seconds_since(begin));
    }
    if (auto done = world_.all_reduce(&best, &best, 1, DataType::f64, Reduction::max).wait(); !done) {
      return std::move(done).error();
    }
    return best;
  }

 private:
  // For what the host reads of the device, or measures.
  void synchronize() const {
    if (device_.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device_.index());
  }

  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  // Small whole numbers, exact in every type.
  at::Tensor data_of(int rank, std::int64_t count, at::ScalarType scalar) const {
    return (at::arange(count, at::kLong) * 3 + rank * 7).remainder(4).add(1).to(scalar);
  }
  at::Tensor on_device(const at::Tensor& tensor) const { return tensor.to(device_).contiguous(); }

  at::Tensor reduced(Reduction reduction, std::int64_t count, at::ScalarType scalar) const {
    at::Tensor result = data_of(0, count, at::kDouble);
    for (int rank = 1; rank < world_.size(); ++rank) {
      const at::Tensor next = data_of(rank, count, at::kDouble);
      switch (reduction) {
        case Reduction::sum:
        case Reduction::average:
          result = result + next;
          break;
        case Reduction::min:
          result = at::minimum(result, next);
          break;
        case Reduction::max:
          result = at::maximum(result, next);
          break;
        case Reduction::product:
          result = result * next;
          break;
      }
    }
    if (reduction == Reduction::average) result = result / world_.size();
    return result.to(scalar);
  }

  Result<> compare(const char* what, const Type& type, const at::Tensor& got,
                   const at::Tensor& expected) const {
    if (at::equal(got.cpu(), expected)) return {};
    return failed(std::string(what) + " of " + std::string(comm::name_of(type.type)) +
                  " came out wrong on rank " + std::to_string(world_.rank()) + " on " + device_.str());
  }

  Result<> check_reductions(const Type& type, std::int64_t count) {
    for (const Reduction reduction :
         {Reduction::sum, Reduction::average, Reduction::min, Reduction::max, Reduction::product}) {
      const bool whole = at::isIntegralType(type.scalar, false);
      const bool even = (world_.size() & (world_.size() - 1)) == 0;
      if (reduction == Reduction::average && (whole || !even)) continue;
      auto data = on_device(data_of(world_.rank(), count, type.scalar));
      auto out = at::zeros_like(data);
      auto done =
          world_.all_reduce(data.data_ptr(), out.data_ptr(), size(count), type.type, reduction).wait();
      if (done) done = compare("all_reduce", type, out, reduced(reduction, count, type.scalar));
      if (done)
        done = world_.all_reduce(data.data_ptr(), data.data_ptr(), size(count), type.type, reduction).wait();
      if (done) done = compare("all_reduce in place", type, data, reduced(reduction, count, type.scalar));
      if (!done) return done;
    }
    return check_scattered_sum(type, count);
  }

  Result<> check_scattered_sum(const Type& type, std::int64_t count) {
    const std::int64_t all = count * world_.size();
    auto wide = on_device(data_of(world_.rank(), all, type.scalar));
    auto part = at::zeros({count}, wide.options());
    auto done =
        world_.reduce_scatter(wide.data_ptr(), part.data_ptr(), size(count), type.type, Reduction::sum)
            .wait();
    const auto sums = reduced(Reduction::sum, all, type.scalar);
    if (done)
      done = compare("reduce_scatter", type, part,
                     sums.slice(0, world_.rank() * count, (world_.rank() + 1) * count));
    return done;
  }

  Result<> check_moves(const Type& type, std::int64_t count) {
    const int root = world_.size() - 1;
    auto mine = on_device(data_of(world_.rank(), count, type.scalar));
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < world_.size(); ++rank) parts.push_back(data_of(rank, count, type.scalar));
    auto all = at::zeros({count * world_.size()}, mine.options());
    auto done = world_.all_gather(mine.data_ptr(), all.data_ptr(), size(count), type.type).wait();
    if (done) done = compare("all_gather", type, all, at::cat(parts));
    if (done) done = world_.broadcast(mine.data_ptr(), size(count), type.type, root).wait();
    if (done) done = compare("broadcast", type, mine, data_of(root, count, type.scalar));
    if (!done || world_.size() == 1) return done;
    auto mixed = at::zeros_like(all);
    std::vector<at::Tensor> blocks;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const auto theirs = data_of(rank, count * world_.size(), type.scalar);
      blocks.push_back(theirs.slice(0, world_.rank() * count, (world_.rank() + 1) * count));
    }
    auto wide = on_device(data_of(world_.rank(), count * world_.size(), type.scalar));
    done = world_.all_to_all(wide.data_ptr(), mixed.data_ptr(), size(count), type.type).wait();
    if (done) done = compare("all_to_all", type, mixed, at::cat(blocks));
    if (done) done = world_.all_to_all(wide.data_ptr(), wide.data_ptr(), size(count), type.type).wait();
    if (done) done = compare("all_to_all in place", type, wide, at::cat(blocks));
    if (!done) return done;
    const int next = (world_.rank() + 1) % world_.size();
    const int before = (world_.rank() + world_.size() - 1) % world_.size();
    auto message = on_device(data_of(world_.rank(), count, type.scalar));
    auto received = at::zeros_like(message);
    auto sending = world_.send(message.data_ptr(), size(count), type.type, next);
    done = world_.recv(received.data_ptr(), size(count), type.type, before).wait();
    if (auto sent = sending.wait(); done && !sent) done = sent;
    if (done) done = compare("recv", type, received, data_of(before, count, type.scalar));
    return done;
  }

  Communicator& world_;
  at::Device device_;
};

Result<std::string> run() {
  auto options = comm::Options::from_environment();
  if (!options) return std::move(options).error();
  const at::Device device = device_of_rank();
  options->device_memory = device.is_cuda();
  options->deadline = 60s;  // the first use of a GPU takes its time
  auto world = Communicator::connect(*options);
  if (!world) return std::move(world).error();
  Checker checker(*world, device);
  if (auto done = checker.check_all(); !done) return std::move(done).error();
  if (auto done = device.is_cuda() ? checker.check_large() : Result<>(); !done)
    return std::move(done).error();
  if (auto sound = world->check(); !sound) return std::move(sound).error();
  std::string times;
  for (const std::int64_t count : {256L, 16384L, 262144L, 2097152L, 4194304L, 67108864L}) {
    auto seconds = checker.time_all_reduce(count);
    if (!seconds) return std::move(seconds).error();
    std::array<char, 128> line{};
    std::snprintf(line.data(), line.size(), "all_reduce f32 %10ld B %10.1f us %8.2f GB/s\n", count * 4,
                  *seconds * 1e6, static_cast<double>(count) * 4 / *seconds * 1e-9);
    times += line.data();
  }
  if (device.is_cuda()) {
    constexpr std::int64_t count = 2 << 20;
    auto seconds = checker.time_call(count);
    if (!seconds) return std::move(seconds).error();
    std::array<char, 128> line{};
    std::snprintf(line.data(), line.size(), "all_reduce f32 %10ld B %10.1f us of the host's time\n",
                  count * 4, *seconds * 1e6);
    times += line.data();
  }
  const std::string way = device.is_cuda() ? " through " + world->device_way() : "";
  const std::string report = "every collective is exact on " + std::to_string(world->size()) + " rank(s), " +
                             device.str() + way + "\n" + times;
  return world->rank() == 0 ? report : "";
}

}  // namespace

Result<std::string> check_comm() {
  try {
    return run();
  } catch (const std::exception& thrown) {
    return failed(thrown.what()).within("libtorch");
  }
}

}  // namespace tutti::worker
