// What is plain to see of the values that a schema takes: enough to know that no value is taken by two of
// several alternatives, as oneOf wants it. Nobody compares patterns or lengths here: what is not plain to see
// is taken to overlap. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/value.hpp"
#include "serve/constrain/effort.hpp"

namespace tutti::serve {

struct Takes {
  // Sets of types. A schema without a type takes what its keys say nothing about, and that is never written.
  std::uint8_t taken = 0;
  std::uint8_t written = 0;
  // If it takes these alone, sorted; texts that are alike where the values are.
  std::optional<std::vector<std::string>> constants;
  // The same of properties that each of its objects has.
  std::map<std::string, std::vector<std::string>> properties;
};

// The part of the document that a $ref names; null if there is none.
using Resolve = std::function<const json::Value*(std::string_view path)>;

Takes takes(const json::Value& schema, const Resolve& resolve, Effort& effort);

// Whether what is written under either is not taken by the other.
bool exclude_each_other(const Takes& one, const Takes& other);
// To see that, in edges that could be looked at meanwhile.
std::uint64_t work_to_compare(const Takes& one, const Takes& other);

}  // namespace tutti::serve
