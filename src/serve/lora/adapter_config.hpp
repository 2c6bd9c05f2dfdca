// The adapter_config.json of a folder that Hugging Face's PEFT has written: what of it changes an answer is
// computed, or refused by name. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::serve::lora {

inline constexpr std::size_t config_bytes_max = std::size_t{1} << 20;
inline constexpr std::int64_t rank_max = 512;

struct AdapterConfig {
  std::int64_t rank = 0;
  double scale = 0;                  // what B·A is multiplied with
  std::vector<std::string> targets;  // the ends of modules' names; empty: what the file has

  friend bool operator==(const AdapterConfig&, const AdapterConfig&) = default;
};

Result<AdapterConfig> parse_adapter_config(std::string_view json);

}  // namespace tutti::serve::lora
