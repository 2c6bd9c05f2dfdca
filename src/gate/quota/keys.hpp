// The keys of those who may ask through a gateway, as a file has them: a JSON object in each line. A key
// itself stands nowhere, only its hash, and nothing that is said of a file repeats what is in it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::gate {

inline constexpr std::size_t keys_bytes_max = std::size_t{64} << 20;
inline constexpr std::size_t keys_max = 100'000;
inline constexpr std::size_t key_name_bytes_max = 64;
inline constexpr std::size_t key_models_max = 4'096;
inline constexpr std::int64_t key_limit_max = 1'000'000'000'000;
inline constexpr std::int64_t key_priority_max = 1'000;

struct KeyRules {
  std::string name;
  std::set<std::string> models;          // that it may ask; none: all
  std::int64_t requests_per_minute = 0;  // 0: as many as there is room for
  std::int64_t tokens_per_day = 0;       // the same
  std::int64_t priority = 0;             // of two who wait, the higher one goes first

  bool may_ask(const std::string& model) const { return models.empty() || models.contains(model); }
  friend bool operator==(const KeyRules&, const KeyRules&) = default;
};

// By the SHA-256 of the key, in lower-case hexadecimal digits.
using Keys = std::map<std::string, KeyRules>;

// Empty lines, and those that begin with '#', say nothing. Refused as a whole, with the number of the line,
// is a file with anything in it that is not understood, or with a name or a hash twice.
Result<Keys> read_keys(std::string_view text);

}  // namespace tutti::gate
