// What is asked of a server, and when: from a trace, at a rate, or as fast as it answers. Pure but for the
// file that is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/prng.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::asking {

inline constexpr std::int64_t tokens_max = 1 << 20;  // of a prompt, or of an answer

struct Arrival {
  Duration at{};  // after the first
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
};

// Columns arrival_s, input_tokens and output_tokens; plain or gzip'd. Times are divided by `speed`, and what
// does not fit into `context` tokens is cut: the prompt first. At most `count` of them.
struct TraceOptions {
  double speed = 1;
  std::int64_t context = 0;  // 0: any
  std::size_t count = 0;     // 0: all
};
Result<std::vector<Arrival>> read_arrivals(const std::string& file, const TraceOptions& options);

// Of one size each, independent of one another at so many a second; 0: all at once.
std::vector<Arrival> even_arrivals(std::size_t count, const Arrival& each, double rate, Prng& random);

}  // namespace tutti::asking
