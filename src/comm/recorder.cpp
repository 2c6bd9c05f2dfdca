#include "comm/recorder.hpp"

#include <algorithm>

namespace tutti::comm {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

std::uint64_t packed(const OperationRecord& record) {
  return static_cast<std::uint64_t>(record.operation) | static_cast<std::uint64_t>(record.type) << 8 |
         static_cast<std::uint64_t>(record.reduction) << 16 |
         static_cast<std::uint64_t>(record.on_device ? 1 : 0) << 24 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(record.root)) << 32;
}

void unpack(std::uint64_t what, OperationRecord& record) {
  record.operation = static_cast<Operation>(what & 0xff);
  record.type = static_cast<DataType>(what >> 8 & 0xff);
  record.reduction = static_cast<Reduction>(what >> 16 & 0xff);
  record.on_device = (what >> 24 & 1) != 0;
  record.root = static_cast<std::int32_t>(what >> 32);
}

}  // namespace

std::uint64_t Recorder::enqueued(const OperationRecord& record) {
  const std::uint64_t handle = last_.fetch_add(1, relaxed) + 1;
  Entry& place = entry(handle);
  place.handle.store(0, std::memory_order_release);
  place.group.store(record.group, relaxed);
  place.sequence.store(record.sequence, relaxed);
  place.what.store(packed(record), relaxed);
  place.bytes.store(record.bytes, relaxed);
  place.enqueued_ns.store(record.enqueued_ns, relaxed);
  place.started_ns.store(record.started_ns, relaxed);
  place.ended_ns.store(record.ended_ns, relaxed);
  place.handle.store(handle, std::memory_order_release);
  return handle;
}

void Recorder::started(std::uint64_t handle, std::int64_t now_ns) {
  Entry& place = entry(handle);
  if (place.handle.load(relaxed) == handle) place.started_ns.store(now_ns, relaxed);
}

void Recorder::ended(std::uint64_t handle, std::int64_t now_ns) {
  Entry& place = entry(handle);
  if (place.handle.load(relaxed) == handle) place.ended_ns.store(now_ns, relaxed);
}

std::vector<OperationRecord> Recorder::pending() const {
  std::vector<OperationRecord> begun = records();
  std::erase_if(begun, [](const auto& record) { return record.started_ns == 0 || record.ended_ns != 0; });
  std::sort(begun.begin(), begun.end(),
            [](const auto& a, const auto& b) { return a.started_ns < b.started_ns; });
  return begun;
}

std::vector<OperationRecord> Recorder::records() const {
  std::vector<OperationRecord> all;
  const std::uint64_t last = last_.load(relaxed);
  const std::uint64_t first = last > records_max ? last - records_max + 1 : 1;
  for (std::uint64_t handle = first; handle <= last; ++handle) {
    const Entry& place = entries_[handle % records_max];
    if (place.handle.load(std::memory_order_acquire) != handle) continue;
    OperationRecord record{.group = place.group.load(relaxed),
                           .sequence = place.sequence.load(relaxed),
                           .bytes = place.bytes.load(relaxed),
                           .enqueued_ns = place.enqueued_ns.load(relaxed),
                           .started_ns = place.started_ns.load(relaxed),
                           .ended_ns = place.ended_ns.load(relaxed)};
    unpack(place.what.load(relaxed), record);
    if (place.handle.load(std::memory_order_acquire) == handle) all.push_back(record);
  }
  return all;
}

}  // namespace tutti::comm
