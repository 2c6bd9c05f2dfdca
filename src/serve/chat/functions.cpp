#include <algorithm>
#include <array>
#include <optional>

#include "serve/chat/letters.hpp"
#include "serve/chat/work.hpp"

namespace tutti::serve::chat {
namespace {

// ---- tests

std::optional<std::string_view> comparing_test(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> tests{{{"eq", "=="},
                                                                                        {"equalto", "=="},
                                                                                        {"sameas", "=="},
                                                                                        {"ne", "!="},
                                                                                        {"lt", "<"},
                                                                                        {"lessthan", "<"},
                                                                                        {"le", "<="},
                                                                                        {"gt", ">"},
                                                                                        {"greaterthan", ">"},
                                                                                        {"ge", ">="},
                                                                                        {"in", "in"},
                                                                                        {"==", "=="},
                                                                                        {"!=", "!="},
                                                                                        {">", ">"}}};
  for (const auto& [test, sign] : tests) {
    if (test == name) return sign;
  }
  return std::nullopt;
}

using Test = bool (*)(const Value&);
constexpr std::array<std::pair<std::string_view, Test>, 16> kind_tests{{
    {"defined", [](const Value& value) { return !value.is_undefined(); }},
    {"undefined", [](const Value& value) { return value.is_undefined(); }},
    {"none", [](const Value& value) { return value.is_none(); }},
    {"string", [](const Value& value) { return value.text() != nullptr; }},
    {"number", [](const Value& value) { return value.is_number(); }},
    {"integer", [](const Value& value) { return value.whole() != nullptr; }},
    {"float", [](const Value& value) { return value.number() != nullptr; }},
    {"boolean", [](const Value& value) { return value.boolean() != nullptr; }},
    {"true", [](const Value& value) { return value.boolean() != nullptr && *value.boolean(); }},
    {"false", [](const Value& value) { return value.boolean() != nullptr && !*value.boolean(); }},
    {"mapping", [](const Value& value) { return value.map() != nullptr; }},
    {"callable", [](const Value& value) { return value.macro() != nullptr || value.function() != nullptr; }},
    // Python walks through what is undefined as through an empty list.
    {"iterable",
     [](const Value& value) {
       return value.list() != nullptr || value.map() != nullptr || value.text() != nullptr ||
              value.is_undefined();
     }},
    {"sequence",
     [](const Value& value) {
       return value.list() != nullptr || value.map() != nullptr || value.text() != nullptr ||
              value.is_undefined();
     }},
    {"upper",
     [](const Value& value) {
       const std::string text = to_text(value);
       return to_upper(text) == text && to_lower(text) != text;
     }},
    {"lower",
     [](const Value& value) {
       const std::string text = to_text(value);
       return to_lower(text) == text && to_upper(text) != text;
     }},
}};

// ---- functions

Value make_range(Work& work, const Arguments& arguments) {
  std::array<std::int64_t, 3> parts{0, 0, 1};
  const std::size_t given = arguments.values.size();
  if (given == 0 || given > 3) return work.fail("'range' takes one to three numbers");
  for (std::size_t at = 0; at < given; ++at) {
    const std::int64_t* const whole = arguments.values[at].whole();
    if (whole == nullptr) return work.fail("'range' of " + std::string(arguments.values[at].kind()));
    parts[given == 1 ? 1 : at] = *whole;
  }
  const auto [begin, end, stride] = parts;
  if (stride == 0) return work.fail("the step of 'range' is zero");
  List list;
  for (std::int64_t at = begin; stride > 0 ? at < end : at > end;) {
    if (list.size() == range_max)
      return work.fail("'range' has more than " + std::to_string(range_max) + " numbers");
    list.emplace_back(at);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  return work.made(std::move(list));
}

// Of a map and of names, later ones in place of earlier ones.
Map named_values(Work& work, const Arguments& arguments) {
  Map map;
  const auto put = [&](const std::string& key, const Value& value) {
    if (!work.step(1 + map.size() / keys_a_step)) return;
    const auto known =
        std::find_if(map.begin(), map.end(), [&](const auto& item) { return item.first == key; });
    if (known != map.end()) {
      known->second = value;
    } else {
      map.emplace_back(key, value);
    }
  };
  for (const Value& each : arguments.values) {
    if (each.map() == nullptr) continue;
    for (const auto& [key, value] : *each.map()) put(key, value);
  }
  for (const auto& [key, value] : arguments.named) put(key, value);
  return map;
}

Value make_namespace(Work& work, const Arguments& arguments) {
  auto space = std::make_shared<Variables>();
  for (auto& [key, value] : named_values(work, arguments)) {
    if (value.weight() >= unbounded) return work.fail("a namespace cannot hold a namespace or a loop");
    space->insert_or_assign(key, std::move(value));
  }
  return Value(std::move(space));
}

}  // namespace

bool apply_test(Work& work, std::string_view name, const Value& value, const Arguments& arguments) {
  if (!work.step()) return false;
  for (const auto& [known, test] : kind_tests) {
    const bool reads = known == "upper" || known == "lower";
    if (known == name) return (!reads || work.step_through(value)) && test(value);
  }
  const Value other = arguments.get(0, "other");
  if (const auto sign = comparing_test(name)) return compares(work, *sign, value, other);
  if (name == "odd" || name == "even" || name == "divisibleby") {
    const Value rest = calculate(work, "%", value, name == "divisibleby" ? other : Value(2));
    return rest.whole() != nullptr && (*rest.whole() != 0) == (name == "odd");
  }
  work.fail("the test '" + std::string(name) + "' is not known here");
  return false;
}

Value find_function(std::string_view name) {
  for (const std::string_view known : {"range", "namespace", "dict", "raise_exception", "strftime_now"}) {
    if (known == name) return Value(Function{known});
  }
  return Value(Undefined{std::string(name)});
}

Value call_function(Work& work, std::string_view name, const Arguments& arguments) {
  if (!work.step()) return {};
  if (name == "range") return make_range(work, arguments);
  if (name == "namespace") return make_namespace(work, arguments);
  if (name == "dict") return work.made(named_values(work, arguments));
  if (name == "strftime_now")
    return work.made(format_moment(work.now(), to_text(arguments.get(0, "format"))));
  if (name == "raise_exception")
    return work.fail("the template refuses the conversation: " + to_text(arguments.get(0, "message")));
  return work.fail("the function '" + std::string(name) + "' is not known here");
}

}  // namespace tutti::serve::chat
