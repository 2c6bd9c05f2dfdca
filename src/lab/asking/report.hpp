// What came of requests, in the numbers that servers are compared by. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"

namespace tutti::asking {

struct Sample {
  std::string problem;     // empty: it was answered
  Duration first_token{};  // since it was asked
  Duration whole{};        // since then, too
  Duration pause{};        // the longest between two pieces of the answer
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;

  // From token to token, after the first.
  Duration next_token() const {
    return output_tokens > 1 ? (whole - first_token) / (output_tokens - 1) : Duration();
  }
};

// What a request must keep to count as good.
struct Targets {
  Duration first_token = 500ms;
  Duration next_token = 30ms;
};

struct Spread {
  Duration middle{};  // p50
  Duration late{};    // p99
  Duration latest{};
};

struct Report {
  std::size_t answered = 0;
  std::map<std::string, std::size_t> problems;
  double requests_per_second = 0;
  double output_tokens_per_second = 0;
  double prompt_tokens_per_second = 0;
  double good_per_second = 0;  // requests within the targets
  double good_share = 0;       // of all that were asked
  Spread first_token;
  Spread next_token;
  Spread pause;
  Spread whole;
};

Report summarize(std::span<const Sample> samples, Duration took, const Targets& targets);

// The smallest that at least this share of all is not above; 0 of nothing.
Duration quantile(std::vector<Duration> durations, double share);

}  // namespace tutti::asking
