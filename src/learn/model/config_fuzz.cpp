// A config.json of a folder that comes from anywhere: what is taken can be listed, and says the same when it
// is written and read again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.hpp"
#include "learn/model/shape.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace model = tutti::model;
  const auto shape = model::parse_config({reinterpret_cast<const char*>(data), size});
  if (!shape) return 0;
  const auto again = model::parse_config(model::config_json(*shape));
  TUTTI_CHECK(again.ok() && *again == *shape);
  // Many are slow to list, and are listed as few are.
  constexpr std::int64_t parts_max = 1000;
  if (shape->layers * (1 + shape->experts.count) > parts_max) return 0;
  TUTTI_CHECK(model::parameters(*shape) > 0);
  TUTTI_CHECK(!model::foreign_tensors(*shape).empty());
  TUTTI_CHECK(model::operations_per_token(*shape, shape->context) > 0);
  return 0;
}
