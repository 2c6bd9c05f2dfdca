// Text from a trained model, token by token. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::train {

struct GenerateOptions {
  std::string run;  // the run's folder
  std::string prompt;
  std::int64_t tokens = 64;
  double temperature = 0.8;  // 0: always the likeliest
  std::int64_t top = 40;     // of the likeliest tokens; 0: all
  std::uint64_t seed = 1;
};

// Hears each piece of text as it comes, the prompt first.
Result<> generate(const GenerateOptions& options, const std::function<void(std::string_view)>& say);

}  // namespace tutti::train
