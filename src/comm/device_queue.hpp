// Work in the order of a device's stream. Calls return when the work is in line, not when it is done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "comm/reduce.hpp"

namespace tutti::comm {

struct FlagStep {
  enum class Kind { write, wait };  // a wait ends when the flag has reached the value, or passed it
  Kind kind = Kind::write;
  std::atomic<std::uint32_t>* flag = nullptr;
  std::uint32_t value = 0;
};

class DeviceQueue {
 public:
  static constexpr std::size_t steps_max = 256;

  virtual ~DeviceQueue() = default;
  virtual Result<> copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual Result<> reduce(const Reduce& how, std::byte* target, std::span<const std::byte* const> sources,
                          std::size_t count) = 0;
  // One after the other; a write comes after everything before it, also for other processes.
  virtual Result<> flags(std::span<const FlagStep> steps) = 0;
};

}  // namespace tutti::comm
