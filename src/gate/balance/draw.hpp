// Which requests are a canary's: its share of them, spread evenly, without luck. After any number of requests
// it has had its share of them to within one. Pure; one thread at a time.
#pragma once

#include <cstdint>

namespace tutti::gate {

inline constexpr std::int32_t whole_share = 1'000;  // shares are told in thousandths

class Draw {
 public:
  // Whether the next request is the canary's, whose share may be another one each time.
  bool take(std::int32_t share);

 private:
  std::int32_t owed_ = 0;  // to the canary, in thousandths of a request
};

}  // namespace tutti::gate
