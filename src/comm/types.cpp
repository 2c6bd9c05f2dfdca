#include "comm/types.hpp"

#include <array>
#include <string>
#include <vector>

#include "base/text.hpp"

namespace tutti::comm {
namespace {

constexpr std::array<std::string_view, 7> data_type_names{"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
constexpr std::array<std::string_view, 5> reduction_names{"sum", "average", "min", "max", "product"};
constexpr std::array<std::string_view, 11> operation_names{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all",
    "gather",     "scatter",        "send",       "recv",      "barrier"};

template <class Enum, std::size_t count>
Result<Enum> parse(std::string_view word, const std::array<std::string_view, count>& names,
                   std::string_view what) {
  for (std::size_t i = 0; i < count; ++i) {
    if (names[i] == word) return static_cast<Enum>(i);
  }
  const std::vector<std::string> candidates(names.begin(), names.end());
  std::string all;
  for (const std::string& name : candidates) all += (all.empty() ? "" : ", ") + name;
  const std::string hint = did_you_mean(word, candidates);
  return invalid("'" + std::string(word) + "' is no " + std::string(what))
      .remedy(hint.empty() ? "one of: " + all : hint);
}

}  // namespace

std::string_view name_of(DataType type) { return data_type_names.at(static_cast<std::size_t>(type)); }
std::string_view name_of(Reduction reduction) {
  return reduction_names.at(static_cast<std::size_t>(reduction));
}
std::string_view name_of(Operation operation) {
  return operation_names.at(static_cast<std::size_t>(operation));
}

Result<DataType> parse_data_type(std::string_view word) {
  return parse<DataType>(word, data_type_names, "data type");
}
Result<Operation> parse_operation(std::string_view word) {
  return parse<Operation>(word, operation_names, "collective operation");
}

}  // namespace tutti::comm
