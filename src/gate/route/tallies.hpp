// What has become of the requests for services since this gateway began, for each version: by this the
// controller scales, and judges a canary. Nothing is ever taken back, so that a word to it that is lost or
// comes twice does no harm. Pure; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/time.hpp"

namespace tutti::gate {

// The n-th counts first tokens that took at most 2^(n/2) ms and more than the one before it; the last those
// that took longer.
using FirstTokens = std::array<std::uint64_t, 40>;

struct Tally {
  std::uint64_t requests = 0;  // that replicas have answered or failed to
  std::uint64_t failures = 0;  // of those
  FirstTokens first_tokens{};  // of streams, from when a replica was asked
};

class Tallies {
 public:
  using Key = std::pair<std::string, std::int64_t>;  // a service, and a version of it

  // A replica has answered a request, or failed to.
  void answered(const Key& key, bool is_failure);
  // It took so long until the first token of a stream was there.
  void first_token(const Key& key, Duration after);
  // The service is no more.
  void forget(const std::string& service);

  const std::map<Key, Tally>& all() const { return tallies_; }

 private:
  std::map<Key, Tally> tallies_;
};

}  // namespace tutti::gate
