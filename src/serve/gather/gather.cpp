#include "serve/gather/gather.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::serve {

void Gather::put(RunId id, const std::string& kind, std::int64_t rows, Instant now, const std::string& who) {
  TUTTI_CHECK(rows >= 1 && rows <= settings_.rows_max);
  TUTTI_CHECK(places_.empty() || places_.rbegin()->first < id);
  // What takes memory is made first.
  std::map<RunId, Place> place;
  place.emplace(id, Place{kind, who});
  std::map<std::string, Kind> fresh_kind;
  fresh_kind.try_emplace(kind);
  Lines fresh_line;
  fresh_line.try_emplace(who);
  Line item;
  item.emplace(id, Item{rows, now});
  Askers fresh_asker;
  fresh_asker.try_emplace(who);

  places_.merge(place);
  kinds_.merge(fresh_kind);
  Kind& group = kinds_.find(kind)->second;
  group.rows += rows;
  group.lines.merge(fresh_line);
  group.lines.find(who)->second.merge(item);
  askers_.merge(fresh_asker);
  Asker& asker = askers_.find(who)->second;
  if (asker.waiting++ == 0) asker.turn = {std::max(asker.turn.round, round_ + 1), ++entered_};
}

bool Gather::drop(RunId id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return false;
  const auto kind = kinds_.find(place->second.kind);
  const auto line = kind->second.lines.find(place->second.who);
  const auto item = line->second.find(id);
  const auto asker = askers_.find(place->second.who);
  kind->second.rows -= item->second.rows;
  line->second.erase(item);
  if (line->second.empty()) kind->second.lines.erase(line);
  if (kind->second.lines.empty()) kinds_.erase(kind);
  count_out(id, asker);
  return true;
}

void Gather::count_out(RunId id, Askers::iterator asker) {
  places_.erase(id);
  if (--asker->second.waiting > 0) return;
  if (places_.empty()) {  // nobody is there to be fair to
    askers_.clear();
  } else if (asker->second.turn.round <= round_ + 1) {  // as if he came anew
    askers_.erase(asker);
  } else if (askers_.size() > resting_max) {
    std::erase_if(askers_, [](const auto& other) { return other.second.waiting == 0; });
  }
}

Instant Gather::due_of(const Kind& kind) const {
  Instant first = Instant::max();
  for (const auto& [who, line] : kind.lines) first = std::min(first, line.begin()->second.came);
  return is_full(kind) ? first : first + settings_.delay_max;
}

std::pair<Gather::Turn, RunId> Gather::front_of(const Kind& kind) const {
  const auto of = [&](const Lines::value_type& line) {
    return std::pair(askers_.find(line.first)->second.turn, line.second.begin()->first);
  };
  auto front = of(*kind.lines.begin());
  for (const auto& line : kind.lines) front = std::min(front, of(line));
  return front;
}

std::vector<RunId> Gather::take(Instant now) {
  auto chosen = kinds_.end();
  std::pair<Turn, RunId> first;
  for (auto at = kinds_.begin(); at != kinds_.end(); ++at) {
    if (due_of(at->second) > now) continue;
    const auto front = front_of(at->second);
    if (chosen != kinds_.end() && front > first) continue;
    chosen = at;
    first = front;
  }
  std::vector<RunId> batch;
  if (chosen == kinds_.end()) return batch;
  Kind& kind = chosen->second;
  std::size_t requests = 0;
  for (const auto& [who, line] : kind.lines) requests += line.size();
  batch.reserve(std::min(requests, static_cast<std::size_t>(settings_.rows_max)));
  std::vector<Candidate> candidates;  // a heap: whose turn is first is in front
  candidates.reserve(kind.lines.size());
  // From here on nothing takes memory.
  const auto is_later = [](const Candidate& a, const Candidate& b) {
    return a.asker->second.turn > b.asker->second.turn;
  };
  for (auto line = kind.lines.begin(); line != kind.lines.end(); ++line)
    candidates.push_back({line, askers_.find(line->first)});
  std::ranges::make_heap(candidates, is_later);
  std::int64_t rows = 0;
  while (!candidates.empty()) {
    std::ranges::pop_heap(candidates, is_later);
    const auto [line, asker] = candidates.back();
    const auto item = line->second.begin();
    if (rows + item->second.rows > settings_.rows_max) break;
    // Turns that he has not taken, because what he has had waited for others, are no credit.
    round_ = std::max(round_, asker->second.turn.round);
    asker->second.turn = {round_ + static_cast<std::uint64_t>(item->second.rows), ++entered_};
    rows += item->second.rows;
    const RunId id = item->first;
    batch.push_back(id);
    line->second.erase(item);
    if (line->second.empty()) {
      kind.lines.erase(line);
      candidates.pop_back();
    } else {
      std::ranges::push_heap(candidates, is_later);
    }
    count_out(id, asker);
  }
  kind.rows -= rows;
  if (kind.lines.empty()) kinds_.erase(chosen);
  return batch;
}

std::optional<Instant> Gather::due() const {
  std::optional<Instant> first;
  for (const auto& [name, kind] : kinds_) first = first ? std::min(*first, due_of(kind)) : due_of(kind);
  return first;
}

}  // namespace tutti::serve
