#include "control/store/memory/memory_store.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"

namespace tutti::store {

Result<std::uint64_t> MemoryStore::read(const Each& each) {
  for (const auto& [key, value] : contents_.objects) {
    if (auto taken = each(key, value); !taken) return std::move(taken).error();
  }
  return contents_.revision;
}

CommitResult MemoryStore::commit(std::uint64_t revision, std::span<const Write> writes) {
  if (revision != contents_.revision) return {CommitResult::Status::conflict, 0, "somebody else has written"};
  const auto fault = std::exchange(fault_, std::nullopt);
  if (!fault) {
    apply(writes);
    return {CommitResult::Status::done, contents_.revision, ""};
  }
  if (fault->status == CommitResult::Status::conflict) {
    ++contents_.revision;
    return {CommitResult::Status::conflict, 0, "somebody else has written (injected)"};
  }
  if (fault->landed) apply(writes);
  return {CommitResult::Status::unknown, 0, "the disk is full (injected)"};
}

void MemoryStore::fail_next(CommitResult::Status status, bool landed) {
  TUTTI_CHECK(status != CommitResult::Status::done, "a commit that is done has not failed");
  TUTTI_CHECK(status == CommitResult::Status::unknown || !landed, "nothing of a conflict lands");
  fault_ = Fault{status, landed};
}

void MemoryStore::apply(std::span<const Write> writes) {
  for (const Write& write : writes) {
    if (write.value) {
      contents_.objects[write.key] = *write.value;
    } else {
      contents_.objects.erase(write.key);
    }
  }
  ++contents_.revision;
}

}  // namespace tutti::store
