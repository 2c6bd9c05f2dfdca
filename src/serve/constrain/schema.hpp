// JSON schemas as grammars: what a model writes under one is a text that the schema takes. A subset, and what
// is not in it is refused by name rather than passed over:
//
//   type (one or several), properties, required, additionalProperties, items, minItems, maxItems, enum,
//   const, anyOf, oneOf of alternatives that plainly exclude each other (exclusion.hpp), allOf of one,
//   minLength, maxLength, pattern, minimum, maximum, exclusiveMinimum, exclusiveMaximum, $ref into the
//   document, $defs, definitions; titles and the like, among which is format
//
// Properties come in the order of the schema. Objects with properties have no others. Numbers have at most 18
// digits before the point and as many behind it; one with a bound has no exponent. Of an enum that has a
// const or a type beside it, both hold. Between the parts there is at most one blank or one line break with
// its indent: a model cannot fill its answer with white space. Pure.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.hpp"
#include "serve/constrain/effort.hpp"
#include "serve/constrain/grammar.hpp"

namespace tutti::serve {

inline constexpr std::size_t schema_bytes_max = 256 * 1024;
inline constexpr int schema_depth_max = 48;               // of one inside another
inline constexpr std::int64_t schema_items_max = 1'000;   // that are counted: minItems, maxItems
inline constexpr std::int64_t schema_length_max = 4'000;  // minLength, maxLength
inline constexpr std::size_t schema_choices_max = 1'000;  // of anyOf
inline constexpr std::size_t schema_values_max = 20'000;  // of an enum
inline constexpr std::size_t schema_properties_max = 1'000;
inline constexpr std::size_t schema_path_bytes_max = 2'048;  // of the keys that lead to a part

// From a node to where a value has been read that the schema takes.
Result<NodeId> add_schema(Grammar& grammar, NodeId from, std::string_view schema, Effort& effort);
// The same for any JSON object.
Result<NodeId> add_any_object(Grammar& grammar, NodeId from);

}  // namespace tutti::serve
