// Entries by rank, the smallest first: a heap in which an entry knows its place, so that one whose rank has
// changed moves alone and many cost little more than few. The entries belong to others and stay where they
// are while they are in here. Used by one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace tutti::sched {

// What an entry of a ranking derives from. No two ranks in one ranking are equal.
template <class Rank>
struct Ranked {
  static constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

  Rank rank{};
  std::size_t place = nowhere;  // in the one ranking that it is in

  bool is_ranked() const { return place != nowhere; }
};

template <class Entry>
class Ranking {
 public:
  bool empty() const { return heap_.empty(); }
  Entry& first() const { return *heap_.front(); }

  // Puts it in, or to where its new rank belongs.
  void put(Entry& entry, const auto& rank) {
    entry.rank = rank;
    if (!entry.is_ranked()) {
      entry.place = heap_.size();
      heap_.push_back(&entry);
    }
    settle(entry);
  }

  void drop(Entry& entry) {
    TUTTI_CHECK(entry.is_ranked() && heap_[entry.place] == &entry);
    Entry* last = heap_.back();
    heap_.pop_back();
    const std::size_t place = std::exchange(entry.place, Entry::nowhere);
    if (last == &entry) return;
    last->place = place;
    heap_[place] = last;
    settle(*last);
  }

  // How often two ranks were compared so far: what all of it has cost.
  std::uint64_t compared() const { return compared_; }

 private:
  bool comes_before(std::size_t place, std::size_t other) {
    ++compared_;
    return heap_[place]->rank < heap_[other]->rank;
  }

  void swap(std::size_t place, std::size_t other) {
    std::swap(heap_[place], heap_[other]);
    heap_[place]->place = place;
    heap_[other]->place = other;
  }

  void settle(Entry& entry) {
    while (entry.place > 0) {
      const std::size_t above = (entry.place - 1) / 2;
      if (!comes_before(entry.place, above)) break;
      swap(entry.place, above);
    }
    for (std::size_t below = 2 * entry.place + 1; below < heap_.size(); below = 2 * entry.place + 1) {
      if (below + 1 < heap_.size() && comes_before(below + 1, below)) ++below;
      if (!comes_before(below, entry.place)) return;
      swap(entry.place, below);
    }
  }

  std::vector<Entry*> heap_;
  std::uint64_t compared_ = 0;
};

}  // namespace tutti::sched
