#include "base/rate.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace tutti {

TokenBucket::TokenBucket(Rate rate, Instant now) : rate_(rate), tokens_(rate.burst), filled_at_(now) {
  TUTTI_CHECK(rate.per_second > 0 && rate.burst >= 1);
}

double TokenBucket::level(Instant now) const {
  const double seconds = std::chrono::duration<double>(std::max(now - filled_at_, Duration::zero())).count();
  return std::min(rate_.burst, tokens_ + seconds * rate_.per_second);
}

Duration TokenBucket::take(Instant now) {
  tokens_ = level(now);
  filled_at_ = std::max(filled_at_, now);
  if (tokens_ >= 1) {
    tokens_ -= 1;
    return Duration::zero();
  }
  // Rounded up, so that a caller who waits that long finds a token.
  const double nanoseconds = std::ceil((1 - tokens_) / rate_.per_second * 1e9);
  return Duration(static_cast<Duration::rep>(nanoseconds) + 1);
}

Duration RateLimits::take(const std::string& key, Instant now) {
  if (buckets_.size() >= keys_max_ && !buckets_.contains(key)) make_room(now);
  return buckets_.try_emplace(key, rate_, now).first->second.take(now);
}

void RateLimits::make_room(Instant now) {
  std::erase_if(buckets_, [now](const auto& entry) { return entry.second.full(now); });
  // So many busy keys at once are an attack: all begin anew, rather than that nobody new is let in.
  if (buckets_.size() >= keys_max_) buckets_.clear();
}

}  // namespace tutti
