// The parts of JSON that every schema is made of: strings, numbers, white space, any value. Each is written
// into the grammar when it is first called. For the sources of this folder only.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "serve/constrain/grammar.hpp"

namespace tutti::serve {

class JsonParts {
 public:
  explicit JsonParts(Grammar& grammar) : grammar_(grammar) {}

  // Each goes from a node, and says where it leads.
  NodeId space(NodeId from) { return call(from, "space", &JsonParts::make_space); }
  NodeId letter(NodeId from) { return call(from, "letter", &JsonParts::make_letter); }
  NodeId string(NodeId from) { return call(from, "string", &JsonParts::make_string); }
  NodeId integer(NodeId from) { return call(from, "integer", &JsonParts::make_integer); }
  NodeId number(NodeId from) { return call(from, "number", &JsonParts::make_number); }
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

  Grammar& grammar_;
  std::map<std::string, NodeId> made_;
};

}  // namespace tutti::serve
