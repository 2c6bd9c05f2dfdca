// What each key has used, and whether it may ask once more: so many requests a minute, with a minute's worth
// at once after a rest, and so many tokens in a day of UTC. A request that has begun is answered; what it
// took is counted when it is over. Pure: time is an argument, and stands still where a clock goes back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/rate.hpp"
#include "base/time.hpp"
#include "gate/quota/keys.hpp"

namespace tutti::gate {

struct KeyUsage {
  std::uint64_t requests = 0;  // that were let in
  std::uint64_t refused = 0;   // because a limit was reached
  std::int64_t tokens = 0;
  std::int64_t tokens_today = 0;
  std::size_t under_way = 0;
};

class Quota {
 public:
  enum class Limit { requests, tokens };
  struct Refusal {
    Limit limit = Limit::requests;
    Duration retry_after{};  // then it may be let in
  };

  // A request with the key begins, or why not.
  std::optional<Refusal> begin(const KeyRules& key, Instant now);
  // It is over, and took so many.
  void end(const std::string& name, std::int64_t tokens, Instant now);

  // Those that are no more, and have nothing under way, are forgotten.
  void keep_only(const Keys& keys);
  // By their names.
  const std::map<std::string, KeyUsage>& usage() const { return usage_; }

 private:
  struct Pace {
    std::int64_t per_minute = 0;
    TokenBucket bucket;
  };
  Duration wait_of(const KeyRules& key);
  void advance(Instant now);

  Instant now_;
  std::int64_t day_ = 0;
  std::map<std::string, KeyUsage> usage_;
  std::map<std::string, Pace> paces_;
};

}  // namespace tutti::gate
