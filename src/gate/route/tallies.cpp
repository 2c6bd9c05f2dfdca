#include "gate/route/tallies.hpp"

#include <limits>

namespace tutti::gate {

void Tallies::answered(const Key& key, bool is_failure) {
  Tally& tally = tallies_[key];
  ++tally.requests;
  tally.failures += is_failure ? 1 : 0;
}

void Tallies::first_token(const Key& key, Duration after) {
  constexpr double sqrt_2 = 1.4142135623730951;
  FirstTokens& counts = tallies_[key].first_tokens;
  std::size_t at = 0;
  // Every other end is a power of two to the last bit.
  for (; at + 1 < counts.size(); ++at) {
    const double end = static_cast<double>(std::int64_t{1} << (at / 2)) * (at % 2 == 0 ? 1 : sqrt_2);
    if (in_seconds(after) * 1e3 <= end) break;
  }
  ++counts[at];
}

void Tallies::forget(const std::string& service) {
  const auto begin = tallies_.lower_bound({service, std::numeric_limits<std::int64_t>::min()});
  const auto end = tallies_.upper_bound({service, std::numeric_limits<std::int64_t>::max()});
  tallies_.erase(begin, end);
}

}  // namespace tutti::gate
