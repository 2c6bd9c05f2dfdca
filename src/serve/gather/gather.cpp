#include "serve/gather/gather.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::serve {

void Gather::put(RunId id, const std::string& kind, std::int64_t rows, Instant now) {
  TUTTI_CHECK(rows >= 1 && rows <= settings_.rows_max);
  TUTTI_CHECK(kinds_by_id_.empty() || kinds_by_id_.rbegin()->first < id);
  kinds_by_id_.emplace(id, kind);
  Kind& group = kinds_[kind];
  group.items.push_back({id, rows, now});
  group.rows += rows;
}

bool Gather::drop(RunId id) {
  const auto known = kinds_by_id_.find(id);
  if (known == kinds_by_id_.end()) return false;
  const auto kind = kinds_.find(known->second);
  auto& items = kind->second.items;
  const auto item = std::lower_bound(items.begin(), items.end(), id,
                                     [](const Item& each, RunId wanted) { return each.id < wanted; });
  kind->second.rows -= item->rows;
  items.erase(item);
  if (items.empty()) kinds_.erase(kind);
  kinds_by_id_.erase(known);
  return true;
}

Instant Gather::due_of(const Kind& kind) const {
  return is_full(kind) ? kind.items.front().came : kind.items.front().came + settings_.delay_max;
}

std::vector<RunId> Gather::take(Instant now) {
  auto chosen = kinds_.end();
  for (auto at = kinds_.begin(); at != kinds_.end(); ++at) {
    if (due_of(at->second) > now) continue;
    if (chosen == kinds_.end() || at->second.items.front().id < chosen->second.items.front().id) chosen = at;
  }
  std::vector<RunId> batch;
  if (chosen == kinds_.end()) return batch;
  Kind& kind = chosen->second;
  std::int64_t rows = 0;
  while (!kind.items.empty() && rows + kind.items.front().rows <= settings_.rows_max) {
    const Item& item = kind.items.front();
    rows += item.rows;
    batch.push_back(item.id);
    kinds_by_id_.erase(item.id);
    kind.items.pop_front();
  }
  kind.rows -= rows;
  if (kind.items.empty()) kinds_.erase(chosen);
  return batch;
}

std::optional<Instant> Gather::due() const {
  std::optional<Instant> first;
  for (const auto& [name, kind] : kinds_) first = first ? std::min(*first, due_of(kind)) : due_of(kind);
  return first;
}

}  // namespace tutti::serve
