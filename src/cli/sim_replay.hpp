// The simulations of `tutti sim` that replay a trace, fill a cluster or time the scheduler. Main thread.
#pragma once

#include <string>

#include "base/config/flags.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::cli {

class ReplayCommands {
 public:
  void declare(config::Flags& flags);

  Result<int> run();
  Result<int> saturate();
  Result<int> scale();

  std::uint64_t seed_first = 42;
  std::uint64_t seed_last = 51;
  std::string json;  // a file, "-" for stdout, "" for a text

 private:
  std::string cluster_;
  std::string trace_;
  std::string partition_;
  std::string policy_ = "tutti";
  std::string failures_;
  std::string html_;
  Duration restart_cost_{};
  Duration checkpoint_every_ = 30min;
  std::string nodes_;
  std::string pods_;
  std::int64_t gpus_ = 220'000;
  std::int64_t jobs_ = 100'000;
};

// Writes a file, or to stdout for "-".
Result<> write_report(const std::string& file, const std::string& text);

}  // namespace tutti::cli
