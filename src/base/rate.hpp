// How often something may happen: a bucket that fills with time, and a bucket for each of many keys. Time is
// an argument, and goes forward. Values of one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/time.hpp"

namespace tutti {

struct Rate {
  double per_second = 0;  // on average, above 0
  double burst = 0;       // at once after a rest, at least 1
};

class TokenBucket {
 public:
  TokenBucket(Rate rate, Instant now);

  // Takes a token and returns zero; or takes none and returns how long it is until there is one.
  Duration take(Instant now);
  bool full(Instant now) const { return level(now) >= rate_.burst; }

 private:
  double level(Instant now) const;

  Rate rate_;
  double tokens_;
  Instant filled_at_;
};

// A bucket for each key. Keys come from outside, so only so many are kept: those that rested are forgotten
// first, which changes nothing for them.
class RateLimits {
 public:
  explicit RateLimits(Rate rate, std::size_t keys_max = 10'000) : rate_(rate), keys_max_(keys_max) {}

  Duration take(const std::string& key, Instant now);
  std::size_t keys() const { return buckets_.size(); }

 private:
  void make_room(Instant now);

  Rate rate_;
  std::size_t keys_max_;
  std::map<std::string, TokenBucket> buckets_;
};

}  // namespace tutti
