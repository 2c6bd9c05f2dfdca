// What an engine with a program counts about itself, as Prometheus reads it. Used by the server's loop only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "serve/runner/runner.hpp"
#include "serve/server/metrics.hpp"

namespace tutti::serve {

struct InferMetrics {
  std::map<int, std::uint64_t> responses;  // by HTTP status
  std::uint64_t cut_off = 0;               // requests whose client left
  Histogram whole_request;

  std::string text(const RunnerCounts& counts, bool draining) const;
};

}  // namespace tutti::serve
