#include "control/controller/watched_store.hpp"

namespace tutti::controller {

template <class Ask>
auto WatchedStore::watch(Ask ask) {
  since_ = clock_().time_since_epoch().count();
  auto answer = ask();
  since_ = 0;
  return answer;
}

Result<std::uint64_t> WatchedStore::read(const Each& each) {
  return watch([&] { return store_.read(each); });
}

store::CommitResult WatchedStore::commit(std::uint64_t revision, std::span<const store::Write> writes) {
  return watch([&] { return store_.commit(revision, writes); });
}

store::CommitResult WatchedStore::commit_from_reserve(std::uint64_t revision,
                                                      std::span<const store::Write> writes) {
  return watch([&] { return store_.commit_from_reserve(revision, writes); });
}

Result<> WatchedStore::tidy() {
  return watch([&] { return store_.tidy(); });
}

}  // namespace tutti::controller
