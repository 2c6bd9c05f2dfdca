// The flight recorder: the last operations of a rank, with their times. Written by whoever runs an operation,
// read by the thread that answers the hub. Any thread; writing costs a few stores.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/signal.hpp"
#include "comm/types.hpp"

namespace tutti::comm {

struct OperationRecord {
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;  // in its group, from 1
  Operation operation = Operation::barrier;
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
  std::int32_t root = -1;
  bool on_device = false;  // on a stream it begins when the device comes to it
  std::uint64_t bytes = 0;
  // Nanoseconds of the steady clock; 0: not yet.
  std::int64_t enqueued_ns = 0;
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;

  friend bool operator==(const OperationRecord&, const OperationRecord&) = default;
};

class Recorder {
 public:
  static constexpr std::size_t records_max = 4096;

  // Returns the handle for started() and ended().
  std::uint64_t enqueued(const OperationRecord& record);
  void started(std::uint64_t handle, std::int64_t now_ns);
  void ended(std::uint64_t handle, std::int64_t now_ns);

  // The operations that have begun and not ended, in the order of their beginnings.
  std::vector<OperationRecord> pending() const;

  // What is there, the oldest first; an operation that is being overwritten is left out.
  std::vector<OperationRecord> records() const;

 private:
  struct Entry {
    std::atomic<std::uint64_t> handle{0};  // 0 while it is being written
    std::atomic<std::uint64_t> group{0};
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint64_t> what{0};  // operation, type, reduction, place and root in one word
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::int64_t> enqueued_ns{0};
    std::atomic<std::int64_t> started_ns{0};
    std::atomic<std::int64_t> ended_ns{0};
  };
  Entry& entry(std::uint64_t handle) { return entries_[handle % records_max]; }

  std::array<Entry, records_max> entries_{};
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace tutti::comm
