#include "lab/measure/measure.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/check.hpp"
#include "base/clock/clock.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "comm/reduce.hpp"

namespace tutti::measure {
namespace {

using Clock = std::chrono::steady_clock;
using comm::Communicator;
using comm::DataType;
using comm::Operation;
using comm::Reduction;

constexpr std::size_t size_step = 4;
constexpr std::size_t bytes_max = std::size_t{16} << 30;
constexpr std::size_t limit_bytes_min = std::size_t{64} << 20;
constexpr std::size_t limit_bytes_max = std::size_t{256} << 20;
constexpr int limit_runs = 5;
constexpr int limit_copies = 4;
constexpr std::int64_t iterations_max = 100'000;

// The slowest rank's time counts for all.
Result<double> slowest(Communicator& world, double seconds) {
  if (auto done = world.all_reduce(&seconds, &seconds, 1, DataType::f64, Reduction::max).wait(); !done) {
    return std::move(done).error();
  }
  return seconds;
}

// Memory of the kind that is measured.
class Memory {
 public:
  static Result<Memory> make(Buffers kind, std::size_t bytes) {
    Memory memory;
    if (kind == Buffers::shared) {
      auto shared = comm::allocate(bytes);
      if (!shared) return std::move(shared).error();
      memory.shared_ = std::move(*shared);
      memory.data_ = memory.shared_.data();
    } else {
      memory.ordinary_.reset(new (std::align_val_t(4096)) std::byte[std::max<std::size_t>(bytes, 1)]);
      memory.data_ = memory.ordinary_.get();
    }
    std::fill(memory.data_, memory.data_ + bytes, std::byte{});  // every page is there before the clock runs
    return memory;
  }
  std::byte* data() const { return data_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { operator delete[](data, std::align_val_t(4096)); }
  };
  comm::SharedBuffer shared_;
  std::unique_ptr<std::byte[], Free> ordinary_;
  std::byte* data_ = nullptr;
};

// One operation whose larger buffer has `bytes`.
Result<> run_once(Communicator& world, Operation operation, DataType type, std::byte* data, std::byte* other,
                  std::size_t bytes) {
  const std::size_t count = bytes / comm::size_of(type);
  const std::size_t block = count / static_cast<std::size_t>(world.size());
  const auto me = static_cast<std::size_t>(world.rank());
  switch (operation) {
    case Operation::all_reduce:
      return world.all_reduce(data, data, count, type, Reduction::sum).wait();
    case Operation::reduce_scatter:
      return world.reduce_scatter(data, other, block, type, Reduction::sum).wait();
    case Operation::all_gather:
      return world.all_gather(data + me * block * comm::size_of(type), data, block, type).wait();
    case Operation::broadcast:
      return world.broadcast(data, count, type, 0).wait();
    case Operation::reduce:
      return world.reduce(data, other, count, type, Reduction::sum, 0).wait();
    case Operation::all_to_all:
      return world.all_to_all(data, other, block, type).wait();
    case Operation::gather:
      return world.gather(data, other, block, type, 0).wait();
    case Operation::scatter:
      return world.scatter(data, other, block, type, 0).wait();
    case Operation::send:
    case Operation::recv: {
      // From each even rank to the next one.
      const int peer = world.rank() ^ 1;
      if (peer >= world.size()) return {};
      return world.rank() % 2 == 0 ? world.send(data, count, type, peer).wait()
                                   : world.recv(data, count, type, peer).wait();
    }
    case Operation::barrier:
      return world.barrier().wait();
  }
  return {};
}

class Runner {
 public:
  Runner(Communicator& world, const Plan& plan, std::size_t bytes)
      : world_(world), plan_(plan), bytes_(bytes) {}

  // Seconds of one operation.
  Result<double> run() {
    auto data = Memory::make(plan_.buffers, bytes_);
    auto other = Memory::make(plan_.buffers, bytes_);
    if (!data) return std::move(data).error();
    if (!other) return std::move(other).error();
    data_ = data->data();
    other_ = other->data();
    // Doubling runs warm up, and tell how many fit into the time.
    std::int64_t iterations = 1;
    double seconds = 0;
    for (;;) {
      auto took = timed(iterations);
      if (!took) return took;
      seconds = *took;
      const double wanted = std::chrono::duration<double>(plan_.time).count();
      if (seconds * 4 >= wanted || iterations >= iterations_max) break;
      iterations *= seconds * 32 < wanted ? 8 : 2;
    }
    double best = seconds / static_cast<double>(iterations);
    for (int i = 0; i < 3; ++i) {
      auto took = timed(iterations);
      if (!took) return took;
      best = std::min(best, *took / static_cast<double>(iterations));
    }
    return best;
  }

 private:
  Result<double> timed(std::int64_t iterations) {
    if (auto met = world_.barrier().wait(); !met) return std::move(met).error();
    const auto begin = Clock::now();
    for (std::int64_t i = 0; i < iterations; ++i) {
      auto done = run_once(world_, plan_.operation, plan_.type, data_, other_, bytes_);
      if (!done) return std::move(done).error();
    }
    return slowest(world_, seconds_since(begin));
  }

  Communicator& world_;
  const Plan& plan_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
  std::byte* other_ = nullptr;
};

// A shared buffer of the next rank, as this one sees it.
Result<std::byte*> reach_next(Communicator& world, const std::byte* mine, std::size_t bytes,
                              comm::SharedMappings& mappings) {
  struct Address {
    std::int64_t pid;
    comm::SharedPlace place;
  };
  const auto place = comm::find_shared({mine, bytes});
  TUTTI_CHECK(place.has_value());
  const Address own{getpid(), *place};
  std::vector<Address> all(static_cast<std::size_t>(world.size()));
  if (auto done = world.all_gather(&own, all.data(), sizeof own, DataType::u8).wait(); !done) {
    return std::move(done).error();
  }
  const Address& next = all[static_cast<std::size_t>((world.rank() + 1) % world.size())];
  return mappings.reach(static_cast<pid_t>(next.pid), next.place, bytes);
}

// All ranks at once stream the next one's memory into their own: what an operation on the memory of all has
// to do, and no more. Where the CPUs are far apart, this knows it.
Result<double> memory_speed(Communicator& world, std::size_t limit_bytes) {
  auto from = Memory::make(Buffers::shared, limit_bytes);
  auto to = Memory::make(Buffers::shared, limit_bytes);
  if (!from) return std::move(from).error();
  if (!to) return std::move(to).error();
  comm::SharedMappings mappings;
  auto next = reach_next(world, from->data(), limit_bytes, mappings);
  if (!next) return std::move(next).error();
  double best = 1e9;
  for (int i = 0; i < limit_runs; ++i) {
    // With fewer CPUs than ranks some begin late: the time runs from before all begin until after all have
    // ended.
    const auto begin = Clock::now();
    if (auto met = world.barrier().wait(); !met) return std::move(met).error();
    for (int copy = 0; copy < limit_copies; ++copy) {
      comm::copy_bytes(to->data(), *next, limit_bytes, comm::Store::stream);
    }
    if (auto met = world.barrier().wait(); !met) return std::move(met).error();
    auto took = slowest(world, seconds_since(begin));
    if (!took) return took;
    best = std::min(best, *took);
  }
  return 2.0 * static_cast<double>(limit_bytes) * limit_copies * world.size() / best * 1e-9;
}

// One long message from rank 0 to the last rank, which is the farthest away.
Result<double> link_speed(Communicator& world, std::size_t limit_bytes) {
  auto memory = Memory::make(Buffers::ordinary, limit_bytes);
  if (!memory) return std::move(memory).error();
  const int last = world.size() - 1;
  double best = 1e9;
  for (int i = 0; i < limit_runs; ++i) {
    if (auto met = world.barrier().wait(); !met) return std::move(met).error();
    const auto begin = Clock::now();
    Result<> done;
    if (world.rank() == 0) done = world.send(memory->data(), limit_bytes, DataType::u8, last).wait();
    if (world.rank() == last) done = world.recv(memory->data(), limit_bytes, DataType::u8, 0).wait();
    if (!done) return std::move(done).error();
    auto took = slowest(world, seconds_since(begin));
    if (!took) return took;
    best = std::min(best, *took);
  }
  return static_cast<double>(limit_bytes) / best * 1e-9;
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

}  // namespace

Result<std::vector<std::size_t>> parse_sizes(std::string_view text) {
  const auto dash = text.find('-');
  auto first = parse_bytes(text.substr(0, dash));
  if (!first) return std::move(first).error();
  auto last = dash == std::string_view::npos ? first : parse_bytes(text.substr(dash + 1));
  if (!last) return std::move(last).error();
  const auto begin = static_cast<std::size_t>(first->count());
  const auto end = static_cast<std::size_t>(last->count());
  if (begin == 0 || begin > end || end > bytes_max) {
    return invalid("'" + std::string(text) + "' is no range of sizes")
        .remedy("such as 64K, or 1K-256M; at most 16G");
  }
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = begin; bytes < end; bytes *= size_step) sizes.push_back(bytes);
  sizes.push_back(end);
  return sizes;
}

Result<Buffers> parse_buffers(std::string_view text) {
  if (text == "ordinary") return Buffers::ordinary;
  if (text == "shared") return Buffers::shared;
  return invalid("'" + std::string(text) + "' is no kind of buffers").remedy("ordinary or shared");
}

std::string_view name_of(Buffers buffers) { return buffers == Buffers::shared ? "shared" : "ordinary"; }

double memory_factor(Operation operation, int ranks) {
  const double p = ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 3 * p - 1;
    case Operation::reduce_scatter:
    case Operation::reduce:
      return p + 1;
    case Operation::all_gather:
      return 2 * p;
    case Operation::broadcast:
      return 2 * (p - 1);
    case Operation::all_to_all:
      return 2 * p;
    case Operation::gather:
    case Operation::scatter:
    case Operation::send:
    case Operation::recv:
      return 2;
    case Operation::barrier:
      return 0;
  }
  return 0;
}

double bus_factor(Operation operation, int ranks) {
  const double p = ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 2 * (p - 1) / p;
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return (p - 1) / p;
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::send:
    case Operation::recv:
      return 1;
    case Operation::barrier:
      return 0;
  }
  return 0;
}

std::string Measurement::json() const {
  return "{\"op\": \"" + std::string(comm::name_of(operation)) + "\", \"dtype\": \"" +
         std::string(comm::name_of(type)) + "\", \"bytes\": " + std::to_string(bytes) +
         ", \"ranks\": " + std::to_string(ranks) + ", \"transport\": \"" + transport + "\", \"buffers\": \"" +
         std::string(name_of(buffers)) + "\", \"time_us\": " + number(time_us) +
         ", \"algbw_gb_s\": " + number(algbw_gb_s) + ", \"busbw_gb_s\": " + number(busbw_gb_s) +
         ", \"limit_percent\": " + number(limit_percent) + "}";
}

Result<Limit> measure_limit(Communicator& world, const Plan& plan) {
  const bool by_memory = world.on_one_host();
  Limit limit;
  if (world.size() == 1) return limit;
  // Of buffers as large as those of the operations: finding the pages of larger ones takes longer.
  const std::size_t largest = *std::max_element(plan.bytes.begin(), plan.bytes.end());
  const std::size_t bytes = std::clamp(largest, limit_bytes_min, limit_bytes_max);
  auto speed = by_memory ? memory_speed(world, bytes) : link_speed(world, limit_bytes_min);
  if (!speed) return std::move(speed).error();
  (by_memory ? limit.memory_gb_s : limit.link_gb_s) = *speed;
  return limit;
}

Result<std::vector<Measurement>> measure(Communicator& world, const Plan& plan, const Limit& limit,
                                         const std::function<void(const Measurement&)>& each) {
  std::vector<Measurement> all;
  const double bus = bus_factor(plan.operation, world.size());
  const double memory = memory_factor(plan.operation, world.size());
  // A barrier moves nothing, so it has one size.
  const bool empty = plan.operation == Operation::barrier;
  for (const std::size_t bytes : empty ? std::vector<std::size_t>{0} : plan.bytes) {
    auto seconds = Runner(world, plan, bytes).run();
    if (!seconds) return std::move(seconds).error();
    Measurement one{.operation = plan.operation,
                    .type = plan.type,
                    .bytes = bytes,
                    .ranks = world.size(),
                    .transport = limit.link_gb_s > 0 ? "tcp" : "shm",
                    .buffers = plan.buffers};
    one.time_us = *seconds * 1e6;
    one.algbw_gb_s = static_cast<double>(bytes) / *seconds * 1e-9;
    one.busbw_gb_s = one.algbw_gb_s * bus;
    if (limit.memory_gb_s > 0 && memory > 0)
      one.limit_percent = one.algbw_gb_s * memory / limit.memory_gb_s * 100;
    if (limit.link_gb_s > 0 && bus > 0) one.limit_percent = one.busbw_gb_s / limit.link_gb_s * 100;
    if (world.rank() == 0 && each) each(one);
    all.push_back(one);
  }
  return all;
}

}  // namespace tutti::measure
