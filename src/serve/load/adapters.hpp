// Adapters by the names that requests choose them by. Values, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "serve/lora/adapter.hpp"

namespace tutti::serve {

struct NamedAdapter {
  std::string name;
  std::string folder;

  friend bool operator==(const NamedAdapter&, const NamedAdapter&) = default;
};

// "NAME=FOLDER"
Result<NamedAdapter> parse_adapter(std::string_view text);
// Names that clients can write, each for one thing alone: neither another adapter nor the model itself.
Result<> check_adapters(std::span<const NamedAdapter> adapters, std::string_view model);
// All of them, for a model of this shape.
Result<std::vector<lora::Adapter>> open_adapters(std::span<const NamedAdapter> adapters,
                                                 const model::Shape& shape);

}  // namespace tutti::serve
