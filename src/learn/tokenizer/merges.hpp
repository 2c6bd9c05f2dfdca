// The heart of byte pair encoding: of all neighbours in a word that may merge, those of the earliest merge
// do, again and again. Merges is immutable, any thread; a MergeRoom belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

namespace tutti::tokenizer {

struct Merge {
  std::uint32_t left;
  std::uint32_t right;
  std::uint32_t result;
};

// Memory that is used again from word to word.
struct MergeRoom {
  struct Link {
    std::uint32_t token;
    std::uint32_t before;
    std::uint32_t after;
  };
  std::vector<Link> word;
  std::vector<std::uint64_t> waiting;  // a heap of candidates
};

class Merges {
 public:
  // The earliest first. Of two for one pair, the later counts.
  explicit Merges(std::vector<Merge> merges);

  // Appends what the word becomes to `out`. In time n log n: words from outside can be long, and one whose
  // work is abandoned adds nothing.
  void apply(std::span<const std::uint32_t> word, MergeRoom& room, std::vector<std::uint32_t>& out,
             const std::stop_token& abandoned = {}) const;

 private:
  struct Slot {
    std::uint64_t pair;
    std::uint32_t rank;
  };

  std::size_t slot_of(std::uint64_t pair) const;
  std::optional<std::uint32_t> rank_of(std::uint32_t left, std::uint32_t right) const;
  void consider(MergeRoom& room, std::uint32_t left_at) const;
  void merge_at(MergeRoom& room, std::uint32_t at, const Merge& merge) const;

  std::vector<Merge> merges_;
  std::vector<Slot> slots_;  // a hash table with open addressing: this is where encoding spends its time
  unsigned shift_;
};

}  // namespace tutti::tokenizer
