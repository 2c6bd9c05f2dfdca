// Whether a canary is as good as what it is to replace. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "control/cluster/latencies.hpp"

namespace tutti::cluster {

// It is promoted after so many requests without anything against it.
constexpr std::uint64_t canary_requests_min = 100;
// Its first tokens are judged then, or after so long.
constexpr Duration canary_time_max = std::chrono::minutes(10);
// Before so many nothing is held against it.
constexpr std::uint64_t canary_requests_judged_min = 20;
// It may fail twice as often, and once in a hundred more.
constexpr double canary_failures_times = 2;
constexpr double canary_failures_more = 0.01;
// Its first tokens (p95) may take half as long again, and so much more.
constexpr double canary_ttft_times = 1.5;
constexpr Duration canary_ttft_more = 50ms;

// Of one version, since there is a canary.
struct Seen {
  std::uint64_t requests = 0;
  std::uint64_t failures = 0;
  Latencies first_tokens = {};

  friend bool operator==(const Seen&, const Seen&) = default;
};

enum class Verdict { none, promote, roll_back };
struct Judgement {
  Verdict verdict = Verdict::none;
  std::string why = {};  // with the numbers, also of what it still waits for
};

Judgement judge(const Seen& serving, const Seen& canary, Duration age);

}  // namespace tutti::cluster
