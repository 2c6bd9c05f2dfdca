// How a model's folder wants texts to become vectors, as sentence-transformers writes it down. Pure.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

// "last" or "mean".
Result<Pooling> parse_pooling(std::string_view word);

// From modules.json and 1_Pooling/config.json; an empty text is a file that is not there. Without them it is
// the last token's. What is not done here is refused by name.
Result<Pooling> read_pooling(std::string_view modules, std::string_view config);

}  // namespace tutti::serve
