// The flags of `tutti engine` for a TorchScript model. Main thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/config/flags.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "serve/gather/gather.hpp"
#include "serve/load/script.hpp"

namespace tutti::cli {

class ScriptFlags {
 public:
  void declare(config::Flags& flags);
  // The first of them that was given; empty if none was.
  std::string given() const;

  int instances() const { return instances_ > 0 ? static_cast<int>(instances_) : 1; }
  serve::GatherSettings gather() const;

 private:
  static constexpr Duration not_given{-1};

  std::int64_t max_batch_ = 0;
  Duration max_delay_ = not_given;
  std::int64_t instances_ = 0;
};

}  // namespace tutti::cli
