// Numbers between two bounds as a part of a grammar: decimals without an exponent, compared digit by digit.
// A bound is the number that its readers see, the shortest decimal that reads back as the same double; and
// whoever reads what was written under it as a double finds it within its bounds, too. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json/value.hpp"
#include "base/result.hpp"
#include "serve/constrain/json_parts.hpp"

namespace tutti::serve {

struct Bound {
  bool is_negative = false;
  std::int64_t whole = 0;  // before the point
  std::string fraction;    // behind it, without zeros at its end
  bool is_open = false;    // it is itself left out
};

enum class Side { lower, upper };

// Of a number. Nothing: all that is ever written lies within it. What is wrong with it is invalid.
Result<std::optional<Bound>> read_bound(const json::Value& value, Side side, bool is_open);
// The one that leaves less.
std::optional<Bound> tighter(std::optional<Bound> one, std::optional<Bound> other, Side side);

// From a node to where such a number has been read; nothing if there is none.
std::optional<NodeId> add_number_between(Grammar& grammar, JsonParts& parts, NodeId from,
                                         const std::optional<Bound>& low, const std::optional<Bound>& high);

}  // namespace tutti::serve
