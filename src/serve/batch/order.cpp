#include "serve/batch/order.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::serve {

void Order::list(Key& key) {
  if (key.waiting.empty()) return;
  key.by_charge.value() = {key.charged, *key.waiting.begin()};
  key.by_rest.value() = {key.given, *key.waiting.begin()};
  by_charge_.insert(std::move(key.by_charge));
  by_rest_.insert(std::move(key.by_rest));
}

void Order::unlist(Key& key) {
  if (key.waiting.empty()) return;
  key.by_charge = by_charge_.extract({key.charged, *key.waiting.begin()});
  key.by_rest = by_rest_.extract({key.given, *key.waiting.begin()});
}

void Order::enter(const std::string& name, std::uint64_t step) {
  Key& key = keys_.try_emplace(name).first->second;
  if (key.unfinished > 0) {
    ++key.unfinished;
    return;
  }
  for (Listed::node_type* place : {&key.by_charge, &key.by_rest}) {
    Listed made;
    if (place->empty()) *place = made.extract(made.emplace().first);
  }
  if (!active_.empty()) floor_ = std::max(floor_, *active_.begin());
  key.charged = std::max(key.charged, floor_);
  key.given = step;
  active_.insert(key.charged);
  key.unfinished = 1;
}

void Order::leave(const std::string& name) {
  const auto entry = keys_.find(name);
  TUTTI_CHECK(entry != keys_.end() && entry->second.unfinished > 0);
  if (--entry->second.unfinished > 0) return;
  TUTTI_CHECK(entry->second.waiting.empty());
  active_.erase(active_.find(entry->second.charged));
  if (active_.empty()) {  // nobody is there to be fair to
    keys_.clear();
    floor_ = 0;
  } else if (entry->second.charged <= floor_) {
    keys_.erase(entry);
  } else if (keys_.size() > resting_keys_max) {
    std::erase_if(keys_, [](const auto& other) { return other.second.unfinished == 0; });
  }
}

void Order::add(const std::string& name, SequenceId sequence, std::uint64_t step) {
  const auto entry = keys_.find(name);
  TUTTI_CHECK(entry != keys_.end() && entry->second.unfinished > 0);
  std::set<SequenceId> made{sequence};
  unlist(entry->second);
  if (entry->second.waiting.empty()) entry->second.given = step;
  entry->second.waiting.merge(made);
  TUTTI_CHECK(made.empty(), "nobody waits twice");
  list(entry->second);
}

void Order::remove(const std::string& name, SequenceId sequence) {
  const auto entry = keys_.find(name);
  TUTTI_CHECK(entry != keys_.end());
  unlist(entry->second);
  TUTTI_CHECK(entry->second.waiting.erase(sequence) == 1, "only who waits stops waiting");
  list(entry->second);
}

bool Order::waits(const std::string& name, SequenceId sequence) const {
  const auto entry = keys_.find(name);
  return entry != keys_.end() && entry->second.waiting.contains(sequence);
}

std::optional<SequenceId> Order::next(std::uint64_t step, std::span<const SequenceId> passed) const {
  const auto is_passed = [&](SequenceId id) { return std::ranges::find(passed, id) != passed.end(); };
  for (const auto& [given, patient] : by_rest_) {
    if (step <= given + patience_steps_) break;
    if (!is_passed(patient)) return patient;
  }
  for (const auto& [charged, first] : by_charge_) {
    if (!is_passed(first)) return first;
  }
  return std::nullopt;
}

void Order::charge(const std::string& name, std::int64_t tokens, std::uint64_t step) {
  const auto entry = keys_.find(name);
  TUTTI_CHECK(entry != keys_.end() && entry->second.unfinished > 0 && tokens >= 0);
  unlist(entry->second);
  auto active = active_.extract(active_.find(entry->second.charged));
  entry->second.charged += static_cast<std::uint64_t>(tokens);
  active.value() = entry->second.charged;
  active_.insert(std::move(active));
  entry->second.given = step;
  list(entry->second);
}

Result<> Order::invariants() const {
  std::size_t waiting = 0;
  std::size_t active = 0;
  for (const auto& [name, key] : keys_) {
    if (key.unfinished > 0) ++active;
    if (key.waiting.empty()) continue;
    ++waiting;
    if (key.unfinished == 0) return failed("the key '" + name + "' waits and has no request");
    if (!by_charge_.contains({key.charged, *key.waiting.begin()}) ||
        !by_rest_.contains({key.given, *key.waiting.begin()}))
      return failed("the key '" + name + "' waits and is in no order");
  }
  if (by_charge_.size() != waiting || by_rest_.size() != waiting) return failed("somebody is in order twice");
  if (active_.size() != active) return failed("the keys with requests are counted wrong");
  return {};
}

}  // namespace tutti::serve
