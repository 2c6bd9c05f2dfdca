// What an engine counts about itself, as Prometheus reads it. Used by the server's loop only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "serve/engine/engine.hpp"

namespace tutti::serve {

class Histogram {
 public:
  // The upper ends of all but the last bucket, in seconds.
  static constexpr std::array<double, 14> ends{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                               0.25,  0.5,    1,     2.5,  5,     10,   60};
  void add(double seconds, std::uint64_t times = 1);
  // `prefix`: of whose numbers it is one.
  void write(const std::string& prefix, const std::string& name, const std::string& help,
             std::string& out) const;

 private:
  std::array<std::uint64_t, ends.size() + 1> counts_{};
  double sum_ = 0;
};

inline constexpr const char* engine_prefix = "tutti_engine_";

// One number with its name and what it is; `type` is counter or gauge.
void write_metric(const char* name, const char* type, const char* help, std::int64_t value, std::string& out);
void write_responses(const std::map<int, std::uint64_t>& by_status, std::string& out);

struct Metrics {
  std::map<int, std::uint64_t> responses;  // by HTTP status
  std::uint64_t cut_off = 0;               // requests whose client left, or read too slowly
  Histogram first_token;                   // from the request to its first token
  Histogram next_token;                    // from token to token
  Histogram whole_request;

  // `counts` are the engine's; those of an engine that is not there yet are zeros.
  std::string text(const EngineCounts& counts) const;
};

}  // namespace tutti::serve
