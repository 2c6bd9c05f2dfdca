// The parts of JSON that every schema is made of: strings, numbers, white space, any value. Each is written
// into the grammar when it is first called. For the sources of this folder only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "serve/constrain/grammar.hpp"

namespace tutti::serve {

// Numbers have at most 18 digits before the point.
inline constexpr std::int64_t integer_max = 999'999'999'999'999'999;

class JsonParts {
 public:
  explicit JsonParts(Grammar& grammar) : grammar_(grammar) {}

  // Each goes from a node, and says where it leads.
  NodeId space(NodeId from) { return call(from, "space", &JsonParts::make_space); }
  NodeId letter(NodeId from) { return call(from, "letter", &JsonParts::make_letter); }
  NodeId string(NodeId from) { return call(from, "string", &JsonParts::make_string); }
  NodeId integer(NodeId from) { return call(from, "integer", &JsonParts::make_integer); }
  NodeId number(NodeId from) { return call(from, "number", &JsonParts::make_number); }
  // Of `low` to `high`, neither of which lies beyond integer_max on its side.
  NodeId integer_between(NodeId from, std::int64_t low, std::int64_t high);
  // The same without a sign.
  NodeId count_between(NodeId from, std::int64_t low, std::int64_t high);
  NodeId value(NodeId from) { return call(from, "value", &JsonParts::make_value); }
  NodeId object(NodeId from) { return call(from, "object", &JsonParts::make_object, true); }
  NodeId array(NodeId from) { return call(from, "array", &JsonParts::make_array, true); }

  using Read = std::function<NodeId(NodeId)>;
  // Items between brackets, with commas; at most `most` of them, any number if it is negative.
  NodeId list(NodeId from, std::int64_t least, std::int64_t most, const Read& item);
  // Members of an object that has any number of them.
  NodeId members(NodeId from, const Read& value);

 private:
  NodeId call(NodeId from, const std::string& name, NodeId (JsonParts::*make)(NodeId), bool deep = false);
  NodeId make_space(NodeId from);
  NodeId make_letter(NodeId from);
  NodeId make_string(NodeId from);
  NodeId make_integer(NodeId from);
  NodeId make_number(NodeId from);
  NodeId make_value(NodeId from);
  NodeId make_object(NodeId from);
  NodeId make_array(NodeId from);
  NodeId some_digits(NodeId from, int least, int most);
  void digits_between(NodeId from, std::string_view low, std::string_view high,
                      const std::vector<NodeId>& rest);

  Grammar& grammar_;
  std::map<std::string, NodeId> made_;
};

}  // namespace tutti::serve
