// `tutti bench serve URL`: how fast a server answers. Main thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/config/flags.hpp"
#include "base/result.hpp"
#include "lab/asking/arrivals.hpp"
#include "lab/asking/report.hpp"

namespace tutti::cli {

class BenchServe {
 public:
  void declare(config::Flags& flags);
  Result<int> run(const std::string& url, bool json) const;

 private:
  Result<asking::Arrival> sizes_for(std::int64_t context) const;

  std::string trace_;
  double speed_ = 1;
  double rate_ = 0;
  std::int64_t concurrency_ = 0;
  std::int64_t requests_ = 0;
  std::int64_t prompt_tokens_ = 0;  // 0: not given
  std::int64_t output_tokens_ = 0;
  std::int64_t context_ = 0;
  asking::Targets targets_;
  Duration patience_ = 10min;
  std::string model_;
  std::string key_file_;
  std::string ca_file_;
  std::int64_t seed_ = 1;
};

}  // namespace tutti::cli
