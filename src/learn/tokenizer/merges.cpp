#include "learn/tokenizer/merges.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/check.hpp"

namespace tutti::tokenizer {
namespace {

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

// Candidates between two looks at whether anybody still waits: well below a millisecond.
constexpr std::size_t candidates_between_looks = 4096;

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32U | right; }

// Candidates compare by the rank of their merge, then from left to right.
std::uint64_t candidate(std::uint32_t rank, std::uint32_t at) { return std::uint64_t{rank} << 32U | at; }
std::uint32_t rank_of_candidate(std::uint64_t made) { return static_cast<std::uint32_t>(made >> 32U); }
std::uint32_t place_of_candidate(std::uint64_t made) { return static_cast<std::uint32_t>(made); }

}  // namespace

Merges::Merges(std::vector<Merge> merges) : merges_(std::move(merges)) {
  TUTTI_CHECK(merges_.size() < none);
  const std::size_t slots = std::bit_ceil(2 * merges_.size() + 2);  // at most half full
  slots_.assign(slots, {0, none});
  shift_ = static_cast<unsigned>(64 - std::countr_zero(slots));
  for (std::uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const std::uint64_t pair = pair_of(merges_[rank].left, merges_[rank].right);
    slots_[slot_of(pair)] = {pair, rank};
  }
}

// Where the pair is, or where it would be put.
std::size_t Merges::slot_of(std::uint64_t pair) const {
  constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;  // spreads neighbours over the table
  std::size_t at = pair * golden >> shift_;
  while (slots_[at].rank != none && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

std::optional<std::uint32_t> Merges::rank_of(std::uint32_t left, std::uint32_t right) const {
  const std::uint32_t rank = slots_[slot_of(pair_of(left, right))].rank;
  if (rank == none) return std::nullopt;
  return rank;
}

// Puts the pair that begins here among the candidates, if it can merge.
void Merges::consider(MergeRoom& room, std::uint32_t left_at) const {
  if (left_at == none || room.word[left_at].after == none) return;
  const auto& left = room.word[left_at];
  const auto rank = rank_of(left.token, room.word[left.after].token);
  if (!rank) return;
  room.waiting.push_back(candidate(*rank, left_at));
  std::push_heap(room.waiting.begin(), room.waiting.end(), std::greater<>());
}

// The right one leaves the word; a candidate that still names it no longer fits and is passed over.
void Merges::merge_at(MergeRoom& room, std::uint32_t at, const Merge& merge) const {
  auto& left = room.word[at];
  auto& right = room.word[left.after];
  left.token = merge.result;
  left.after = right.after;
  right.token = none;
  if (left.after != none) room.word[left.after].before = at;
  consider(room, left.before);
  consider(room, at);
}

void Merges::apply(std::span<const std::uint32_t> word, MergeRoom& room, std::vector<std::uint32_t>& out,
                   const std::stop_token& abandoned) const {
  TUTTI_CHECK(word.size() < none);
  const auto size = static_cast<std::uint32_t>(word.size());
  room.word.clear();
  room.waiting.clear();
  for (std::uint32_t at = 0; at < size; ++at)
    room.word.push_back({word[at], at == 0 ? none : at - 1, at + 1 == size ? none : at + 1});
  for (std::uint32_t at = 0; at + 1 < size; ++at) consider(room, at);
  for (std::size_t taken = 0; !room.waiting.empty(); ++taken) {
    if (taken % candidates_between_looks == 0 && abandoned.stop_requested()) return;
    std::pop_heap(room.waiting.begin(), room.waiting.end(), std::greater<>());
    const std::uint64_t next = room.waiting.back();
    room.waiting.pop_back();
    const Merge& merge = merges_[rank_of_candidate(next)];
    const auto& left = room.word[place_of_candidate(next)];
    const bool fits =
        left.token == merge.left && left.after != none && room.word[left.after].token == merge.right;
    if (fits) merge_at(room, place_of_candidate(next), merge);
  }
  for (std::uint32_t at = size == 0 ? none : 0; at != none; at = room.word[at].after)
    out.push_back(room.word[at].token);
}

}  // namespace tutti::tokenizer
