// `tutti nodes token` and `tutti nodes tokens`: what servers join with. Used by the main thread only.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::cli {

struct TokenWish {
  std::int64_t uses_wanted = 1;
  Duration life = 1h;
  std::string name_pattern = {};
};

// Makes one, and prints the line to be typed on the server that is to join.
Result<int> run_nodes_token(const TokenWish& wish, bool json);
Result<int> run_nodes_tokens(bool json);
Result<int> run_revoke_token(const std::string& id);

}  // namespace tutti::cli
