#include "serve/batch/draft.hpp"

#include <algorithm>
#include <bit>

#include "base/prng.hpp"

namespace tutti::serve {
namespace {

constexpr std::size_t slots_min = 64;

std::uint64_t hash_of_last(std::span<const Token> tokens, std::size_t end,
                           std::size_t count = Drafter::alike) {
  std::uint64_t hash = 0;
  for (std::size_t back = 1; back <= count; ++back)
    hash = mixed(hash ^ static_cast<std::uint64_t>(tokens[end - back]));
  return hash;
}

}  // namespace

// All ends but the very last, which would only find itself.
void Drafter::index(std::span<const Token> tokens) {
  if (ends_.size() < tokens.size() * 2) {
    const std::size_t slots = std::bit_ceil(std::max(tokens.size() * 4, slots_min));
    begun_.assign(slots, false);  // first: where there is no memory for the other one all is done again
    ends_.assign(slots, 0);
    indexed_ = 0;
  }
  for (std::size_t end = std::max(indexed_ + 1, alike); end < tokens.size(); ++end) {
    ends_[hash_of_last(tokens, end) & (ends_.size() - 1)] = static_cast<std::int32_t>(end);
    begun_[hash_of_last(tokens, end - 1, alike - 1) & (begun_.size() - 1)] = true;
    indexed_ = end;
  }
}

std::span<const Token> Drafter::guess(std::span<const Token> tokens, std::size_t count) {
  if (count == 0 || tokens.size() <= alike) return {};
  if (pause_ > 0) {
    --pause_;
    return {};
  }
  index(tokens);
  const auto end = static_cast<std::size_t>(ends_[hash_of_last(tokens, tokens.size()) & (ends_.size() - 1)]);
  if (end == 0) return {};
  if (!std::ranges::equal(tokens.subspan(end - alike, alike), tokens.last(alike))) return {};
  return tokens.subspan(end, std::min(count, tokens.size() - end));
}

// One more token completes what must be alike; of those that begin so the last is not in the index yet.
bool Drafter::may_guess_next(std::span<const Token> tokens) {
  if (pause_ > 0 || tokens.size() < alike) return false;
  index(tokens);
  const auto begin = tokens.last(alike - 1);
  if (std::ranges::equal(tokens.last(alike).first(alike - 1), begin)) return true;
  return begun_[hash_of_last(tokens, tokens.size(), alike - 1) & (begun_.size() - 1)];
}

void Drafter::learn(std::size_t guessed, std::size_t right) {
  if (guessed == 0) return;
  if (right > 0) {
    next_pause_ = 1;
    return;
  }
  pause_ = next_pause_;
  next_pause_ = std::min(next_pause_ * 2, pause_max);
}

}  // namespace tutti::serve
