#include "serve/constrain/json_parts.hpp"

#include <algorithm>
#include <string_view>

namespace tutti::serve {
namespace {

constexpr int indent_max = 40;
constexpr int digits_max = 18;
constexpr int exponent_digits_max = 2;  // no reader of doubles finds it too large

}  // namespace

NodeId JsonParts::call(NodeId from, const std::string& name, NodeId (JsonParts::*make)(NodeId), bool deep) {
  auto known = made_.find(name);
  if (known == made_.end()) {
    const NodeId part = grammar_.add();
    known = made_.emplace(name, part).first;  // first, because values have values inside
    grammar_.end_part((this->*make)(part));
  }
  const NodeId after = grammar_.add();
  grammar_.call(from, known->second, after, deep);
  return after;
}

NodeId JsonParts::make_space(NodeId from) {
  const NodeId end = grammar_.add();
  grammar_.skip(from, end);
  grammar_.edge(from, ' ', ' ', end);
  NodeId indent = grammar_.add();
  grammar_.edge(from, '\n', '\n', indent);
  for (int blank = 0; blank < indent_max; ++blank) {
    grammar_.skip(indent, end);
    const NodeId next = grammar_.add();
    grammar_.edge(indent, ' ', ' ', next);
    indent = next;
  }
  grammar_.skip(indent, end);
  return end;
}

// One letter of a string: itself, or behind a backslash. Pairs of \u count as one, halves of pairs cannot be.
NodeId JsonParts::make_letter(NodeId from) {
  const NodeId end = grammar_.add();
  grammar_.letters(from, 0x20, 0x21, end);
  grammar_.letters(from, 0x23, 0x5B, end);
  grammar_.letters(from, 0x5D, 0x10FFFF, end);
  const NodeId escaped = grammar_.add();
  grammar_.edge(from, '\\', '\\', escaped);
  for (const char letter : std::string_view("\"\\/bfnrt"))
    grammar_.edge(escaped, static_cast<std::uint8_t>(letter), static_cast<std::uint8_t>(letter), end);
  const auto hex = [&](NodeId node, NodeId to) {
    grammar_.edge(node, '0', '9', to);
    grammar_.edge(node, 'a', 'f', to);
    grammar_.edge(node, 'A', 'F', to);
  };
  const NodeId code = grammar_.text(escaped, "u");
  const NodeId last_three = grammar_.add();
  const NodeId last_two = grammar_.add();
  const NodeId last = grammar_.add();
  grammar_.edge(code, '0', '9', last_three);
  for (const char letter : std::string_view("abcefABCEF"))
    grammar_.edge(code, static_cast<std::uint8_t>(letter), static_cast<std::uint8_t>(letter), last_three);
  hex(last_three, last_two);
  hex(last_two, last);
  hex(last, end);
  // d0 to d7 are letters; d8 to db begin a pair, dc to df end it.
  const NodeId d = grammar_.add();
  grammar_.edge(code, 'd', 'd', d);
  grammar_.edge(code, 'D', 'D', d);
  grammar_.edge(d, '0', '7', last_two);
  NodeId pair = grammar_.add();
  grammar_.edge(d, '8', '9', pair);
  for (const char letter : std::string_view("abAB"))
    grammar_.edge(d, static_cast<std::uint8_t>(letter), static_cast<std::uint8_t>(letter), pair);
  for (int digit = 0; digit < 2; ++digit) {
    const NodeId next = grammar_.add();
    hex(pair, next);
    pair = next;
  }
  pair = grammar_.text(pair, "\\u");
  const NodeId second = grammar_.add();
  grammar_.edge(pair, 'd', 'd', second);
  grammar_.edge(pair, 'D', 'D', second);
  for (const char letter : std::string_view("cdefCDEF"))
    grammar_.edge(second, static_cast<std::uint8_t>(letter), static_cast<std::uint8_t>(letter), last_two);
  return end;
}

NodeId JsonParts::make_string(NodeId from) {
  const NodeId inside = grammar_.text(from, "\"");
  grammar_.skip(letter(inside), inside);
  return grammar_.text(inside, "\"");
}

NodeId JsonParts::some_digits(NodeId from, int least, int most) {
  const NodeId end = grammar_.add();
  for (int digit = 0; digit < most; ++digit) {
    if (digit >= least) grammar_.skip(from, end);
    const NodeId next = grammar_.add();
    grammar_.edge(from, '0', '9', next);
    from = next;
  }
  grammar_.skip(from, end);
  return end;
}

NodeId JsonParts::make_integer(NodeId from) {
  const NodeId begin = grammar_.add();
  grammar_.skip(from, begin);
  grammar_.edge(from, '-', '-', begin);
  const NodeId more = grammar_.add();
  grammar_.edge(begin, '1', '9', more);
  const NodeId end = some_digits(more, 0, digits_max - 1);
  grammar_.edge(begin, '0', '0', end);
  return end;
}

NodeId JsonParts::integer_between(NodeId from, std::int64_t low, std::int64_t high) {
  const NodeId end = grammar_.add();
  if (high >= 0) grammar_.skip(count_between(from, std::max<std::int64_t>(low, 0), high), end);
  if (low < 0)
    grammar_.skip(count_between(grammar_.text(from, "-"), std::max<std::int64_t>(-high, 1), -low), end);
  return end;
}

// Counts that are longer than the least and shorter than the most are any: only those two lengths have
// bounds.
NodeId JsonParts::count_between(NodeId from, std::int64_t low, std::int64_t high) {
  const std::string least = std::to_string(low);
  const std::string most = std::to_string(high);
  std::vector<NodeId> rest{grammar_.add()};  // so many digits before the end
  while (rest.size() <= most.size()) {
    rest.push_back(grammar_.add());
    grammar_.edge(rest.back(), '0', '9', rest[rest.size() - 2]);
  }
  if (least.size() == most.size()) {
    digits_between(from, least, most, rest);
    return rest.front();
  }
  digits_between(from, least, std::string(least.size(), '9'), rest);
  digits_between(from, "1" + std::string(most.size() - 1, '0'), most, rest);
  if (most.size() - least.size() > 1) {
    const NodeId more = grammar_.add();
    grammar_.edge(from, '1', '9', more);
    grammar_.skip(some_digits(more, static_cast<int>(least.size()), static_cast<int>(most.size()) - 2),
                  rest.front());
  }
  return rest.front();
}

// Both have as many digits.
void JsonParts::digits_between(NodeId from, std::string_view low, std::string_view high,
                               const std::vector<NodeId>& rest) {
  const bool is_any = low.find_first_not_of('0') == std::string_view::npos &&
                      high.find_first_not_of('9') == std::string_view::npos;
  if (is_any) return grammar_.skip(from, rest[low.size()]);
  const auto follow = [&](char digit, std::string_view next_low, std::string_view next_high) {
    const NodeId next = grammar_.add();
    grammar_.edge(from, static_cast<std::uint8_t>(digit), static_cast<std::uint8_t>(digit), next);
    digits_between(next, next_low, next_high, rest);
  };
  const std::size_t left = low.size() - 1;
  if (low.front() == high.front()) return follow(low.front(), low.substr(1), high.substr(1));
  follow(low.front(), low.substr(1), std::string(left, '9'));
  follow(high.front(), std::string(left, '0'), high.substr(1));
  if (high.front() - low.front() > 1)
    grammar_.edge(from, static_cast<std::uint8_t>(low.front() + 1),
                  static_cast<std::uint8_t>(high.front() - 1), rest[left]);
}

NodeId JsonParts::make_number(NodeId from) {
  const NodeId whole = integer(from);
  const NodeId fraction = grammar_.add();
  grammar_.skip(whole, fraction);
  grammar_.skip(some_digits(grammar_.text(whole, "."), 1, digits_max), fraction);
  const NodeId end = grammar_.add();
  grammar_.skip(fraction, end);
  const NodeId sign = grammar_.add();
  grammar_.edge(fraction, 'e', 'e', sign);
  grammar_.edge(fraction, 'E', 'E', sign);
  const NodeId exponent = grammar_.add();
  grammar_.skip(sign, exponent);
  grammar_.edge(sign, '+', '+', exponent);
  grammar_.edge(sign, '-', '-', exponent);
  grammar_.skip(some_digits(exponent, 1, exponent_digits_max), end);
  return end;
}

NodeId JsonParts::make_value(NodeId from) {
  const NodeId end = grammar_.add();
  for (const std::string_view word : {"true", "false", "null"}) grammar_.skip(grammar_.text(from, word), end);
  grammar_.skip(string(from), end);
  grammar_.skip(number(from), end);
  grammar_.skip(object(from), end);
  grammar_.skip(array(from), end);
  return end;
}

NodeId JsonParts::make_object(NodeId from) {
  return members(from, [this](NodeId node) { return value(node); });
}

NodeId JsonParts::make_array(NodeId from) {
  return list(from, 0, -1, [this](NodeId node) { return value(node); });
}

NodeId JsonParts::members(NodeId from, const Read& read_value) {
  const NodeId open = space(grammar_.text(from, "{"));
  const NodeId member = grammar_.add();
  grammar_.skip(open, member);
  const NodeId after = read_value(space(grammar_.text(string(member), ":")));
  grammar_.skip(space(grammar_.text(after, ",")), member);
  const NodeId close = grammar_.add();
  grammar_.skip(open, close);
  grammar_.skip(space(after), close);
  return grammar_.text(close, "}");
}

NodeId JsonParts::list(NodeId from, std::int64_t least, std::int64_t most, const Read& item) {
  const NodeId open = space(grammar_.text(from, "["));
  const NodeId close = grammar_.add();
  if (least == 0) grammar_.skip(open, close);
  NodeId begin = open;
  const std::int64_t copies = most < 0 ? std::max<std::int64_t>(least, 1) : most;
  for (std::int64_t copy = 1; copy <= copies && !grammar_.full(); ++copy) {
    const NodeId first = grammar_.add();
    grammar_.skip(begin, first);
    const NodeId after = item(first);
    if (copy >= least) grammar_.skip(space(after), close);
    if (most >= 0 && copy == copies) break;
    begin = space(grammar_.text(after, ","));
    if (copy == copies) grammar_.skip(begin, first);
  }
  return grammar_.text(close, "]");
}

}  // namespace tutti::serve
