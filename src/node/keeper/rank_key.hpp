// Names one rank of one attempt on a node. A value: any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "control/cluster/model.hpp"

namespace tutti::keeper {

struct RankKey {
  cluster::JobId job;
  std::int32_t attempt = 0;
  std::int32_t rank = 0;

  // "7.0.3" is rank 3 of attempt 0 of job 7.
  std::string text() const { return job.text() + "." + std::to_string(attempt) + "." + std::to_string(rank); }

  friend auto operator<=>(const RankKey&, const RankKey&) = default;
};

}  // namespace tutti::keeper
