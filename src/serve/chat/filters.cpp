#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "serve/chat/letters.hpp"
#include "serve/chat/work.hpp"

namespace tutti::serve::chat {
namespace {

using Filter = Value (*)(Work&, const Value&, const Arguments&);

// ---- texts

Value filter_trim(Work& work, const Value& value, const Arguments& arguments) {
  const std::string text = to_text(value);
  const Value letters = arguments.get(0, "chars");
  return work.made(
      std::string(letters.text() == nullptr ? strip(text, {}) : strip(text, {}, *letters.text())));
}

Value filter_upper(Work& work, const Value& value, const Arguments&) {
  return work.made(to_upper(to_text(value)));
}
Value filter_lower(Work& work, const Value& value, const Arguments&) {
  return work.made(to_lower(to_text(value)));
}
Value filter_title(Work& work, const Value& value, const Arguments&) {
  return work.made(to_title(to_text(value)));
}
Value filter_capitalize(Work& work, const Value& value, const Arguments&) {
  return work.made(to_capitalized(to_text(value)));
}
Value filter_string(Work& work, const Value& value, const Arguments&) { return work.made(to_text(value)); }

Value filter_replace(Work& work, const Value& value, const Arguments& arguments) {
  return call_method(work, to_text(value), "replace", arguments);
}

Value filter_indent(Work& work, const Value& value, const Arguments& arguments) {
  const Value width = arguments.get(0, "width");
  const bool first = arguments.get(1, "first").truth();
  const bool blank = arguments.get(2, "blank").truth();
  const std::string text = to_text(value);
  const std::string by =
      width.text() != nullptr
          ? *width.text()
          : std::string(width.whole() == nullptr
                            ? 4
                            : static_cast<std::size_t>(std::clamp<std::int64_t>(*width.whole(), 0, 100)),
                        ' ');
  std::string out = first ? by : "";
  for (std::size_t at = 0; at < text.size() && work.step(); ++at) {
    out += text[at];
    const bool line_has_text = at + 1 < text.size() && text[at + 1] != '\n';
    if (text[at] == '\n' && (line_has_text || blank)) out += by;
    if (out.size() > value_bytes_max) break;  // made() tells
  }
  return work.made(std::move(out));
}

Value filter_tojson(Work& work, const Value& value, const Arguments& arguments) {
  JsonStyle style;
  const Value indent = arguments.get(0, "indent");
  if (indent.whole() != nullptr) {
    style.indent = std::clamp<std::int64_t>(*indent.whole(), 0, 16);
    style.between_items = ",";
  }
  const Value separators = arguments.get(4, "separators");
  if (separators.list() != nullptr && separators.list()->size() == 2) {
    style.between_items = to_text(separators.list()->front());
    style.behind_key = to_text(separators.list()->back());
  }
  style.sorted = arguments.get(3, "sort_keys").truth();
  style.ascii = arguments.get(1, "ensure_ascii").truth();
  if (style.between_items.size() > 16 || style.behind_key.size() > 16)
    return work.fail("the separators of 'tojson' are longer than 16 bytes");
  std::string out;
  if (!write_json(value, style, value_bytes_max, out))
    return work.fail("'tojson' of a value that holds what JSON has not");
  return work.made(std::move(out));
}

// ---- numbers

Value filter_int(Work& work, const Value& value, const Arguments& arguments) {
  Value otherwise = arguments.has(0, "default") ? arguments.get(0, "default") : Value(0);
  if (value.text() != nullptr) {
    const std::string_view digits = strip(*value.text(), {});
    std::int64_t whole = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
    return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() ? Value(whole) : otherwise;
  }
  if (!value.is_number()) return otherwise;
  if (value.whole() != nullptr) return value;
  const double number = std::trunc(as_number(value));
  static constexpr double whole_max = 9.2e18;
  if (!(std::abs(number) < whole_max)) return work.fail("'int' of a number that is out of range");
  return static_cast<std::int64_t>(number);
}

Value filter_float(Work&, const Value& value, const Arguments& arguments) {
  const Value otherwise = arguments.has(0, "default") ? arguments.get(0, "default") : Value(0.0);
  if (value.text() == nullptr) return value.is_number() ? Value(as_number(value)) : otherwise;
  const std::string_view digits = strip(*value.text(), {});
  double number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() ? Value(number) : otherwise;
}

Value filter_abs(Work& work, const Value& value, const Arguments&) {
  if (value.whole() != nullptr) return *value.whole() < 0 ? calculate(work, "-", 0, value) : value;
  return value.is_number() ? Value(std::abs(as_number(value)))
                           : work.fail("'abs' of " + std::string(value.kind()));
}

Value filter_round(Work& work, const Value& value, const Arguments& arguments) {
  if (!value.is_number()) return work.fail("'round' of " + std::string(value.kind()));
  const Value places = arguments.get(0, "precision");
  const double scale = places.whole() == nullptr ? 1 : std::pow(10.0, static_cast<double>(*places.whole()));
  return std::nearbyint(as_number(value) * scale) / scale;
}

// ---- whatever has elements

Value filter_length(Work& work, const Value& value, const Arguments&) { return length_of(work, value); }
Value filter_list(Work& work, const Value& value, const Arguments&) { return elements_of(work, value); }

Value filter_first(Work& work, const Value& value, const Arguments&) {
  const Value elements = elements_of(work, value);
  return elements.truth() ? elements.list()->front() : Value(Undefined{"first"});
}
Value filter_last(Work& work, const Value& value, const Arguments&) {
  const Value elements = elements_of(work, value);
  return elements.truth() ? elements.list()->back() : Value(Undefined{"last"});
}

// "function.name" goes through two maps.
Value value_at(Work& work, Value value, const std::string& path) {
  for (std::size_t at = 0; at <= path.size() && work.fine();) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    if (!work.step(1 + (end - at) / bytes_a_step)) return {};
    value = attribute_of(work, value, path.substr(at, end - at));
    at = end + 1;
  }
  return value;
}

Value filter_join(Work& work, const Value& value, const Arguments& arguments) {
  const Value elements = elements_of(work, value);
  const Value between = arguments.get(0, "d");
  const Value attribute = arguments.get(1, "attribute");
  if (elements.list() == nullptr) return {};
  std::string out;
  for (const Value& each : *elements.list()) {
    if (&each != elements.list()->data()) out += to_text(between);
    out += to_text(attribute.text() == nullptr ? each : value_at(work, each, *attribute.text()));
    if (out.size() > value_bytes_max || !work.step(1 + to_text(between).size() / bytes_a_step)) break;
  }
  return work.made(std::move(out));
}

Value filter_reverse(Work& work, const Value& value, const Arguments&) {
  if (value.text() != nullptr) return slice_of(work, value, nullptr, nullptr, -1);
  const Value elements = elements_of(work, value);
  return elements.list() == nullptr ? Value()
                                    : work.made(List(elements.list()->rbegin(), elements.list()->rend()));
}

Value filter_unique(Work& work, const Value& value, const Arguments&) {
  const Value elements = elements_of(work, value);
  List kept;
  for (std::size_t at = 0; elements.list() != nullptr && at < elements.list()->size(); ++at) {
    const Value& each = (*elements.list())[at];
    if (!work.step(kept.size() + 1) || !work.step_through(each)) break;
    if (std::none_of(kept.begin(), kept.end(), [&](const Value& known) { return equal(known, each); }))
      kept.push_back(each);
  }
  return work.made(std::move(kept));
}

Value filter_sort(Work& work, const Value& value, const Arguments& arguments) {
  const Value elements = elements_of(work, value);
  if (elements.list() == nullptr) return {};
  const Value attribute = arguments.get(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;  // what it is sorted by, and the element
  for (const Value& each : *elements.list()) {
    Value key = attribute.text() == nullptr ? each : value_at(work, each, *attribute.text());
    if (key.text() != nullptr && !arguments.get(1, "case_sensitive").truth()) key = to_lower(*key.text());
    keyed.emplace_back(std::move(key), each);
    if (!work.step(32) || !comparable(keyed.front().first, keyed.back().first))
      return work.fail("'sort' of values that cannot be compared");
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
  if (arguments.get(0, "reverse").truth()) std::reverse(keyed.begin(), keyed.end());
  List sorted;
  for (auto& [key, each] : keyed) sorted.push_back(std::move(each));
  return work.made(std::move(sorted));
}

Value filter_dictsort(Work& work, const Value& value, const Arguments&) {
  if (value.map() == nullptr) return work.fail("'dictsort' of " + std::string(value.kind()));
  Map sorted = *value.map();
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return to_lower(a.first) < to_lower(b.first); });
  List items;
  for (auto& [key, each] : sorted) items.emplace_back(List{key, each});
  return work.made(std::move(items));
}

Value filter_items(Work& work, const Value& value, const Arguments&) {
  if (value.is_undefined()) return List();
  return call_method(work, value, "items", {});
}

template <class Better>
Value best(Work& work, const Value& value, Better better) {
  const Value elements = elements_of(work, value);
  if (!elements.truth()) return Value(Undefined{"no element"});
  const Value* chosen = &elements.list()->front();
  for (const Value& each : *elements.list()) {
    if (!work.step() || !comparable(*chosen, each)) return work.fail("values that cannot be compared");
    if (better(compare(each, *chosen))) chosen = &each;
  }
  return *chosen;
}
Value filter_min(Work& work, const Value& value, const Arguments&) {
  return best(work, value, [](int order) { return order < 0; });
}
Value filter_max(Work& work, const Value& value, const Arguments&) {
  return best(work, value, [](int order) { return order > 0; });
}

Value filter_sum(Work& work, const Value& value, const Arguments& arguments) {
  const Value elements = elements_of(work, value);
  const Value attribute = arguments.get(0, "attribute");
  Value sum = 0;
  for (std::size_t at = 0; elements.list() != nullptr && at < elements.list()->size() && work.fine(); ++at) {
    const Value& each = (*elements.list())[at];
    sum = calculate(work, "+", sum,
                    attribute.text() == nullptr ? each : value_at(work, each, *attribute.text()));
  }
  return sum;
}

// ---- filters that use others

// The arguments behind the name of a filter or a test.
Arguments behind(const Arguments& arguments, std::size_t first) {
  Arguments rest;
  for (std::size_t at = first; at < arguments.values.size(); ++at)
    rest.values.push_back(arguments.values[at]);
  return rest;
}

Value filter_map(Work& work, const Value& value, const Arguments& arguments) {
  const Value elements = elements_of(work, value);
  const Value attribute = arguments.get(std::string::npos, "attribute");
  const Value otherwise = arguments.get(std::string::npos, "default");
  const Value name = arguments.get(0, "");
  List out;
  for (std::size_t at = 0; elements.list() != nullptr && at < elements.list()->size() && work.step(); ++at) {
    const Value& each = (*elements.list())[at];
    if (attribute.text() != nullptr) {
      const Value found = value_at(work, each, *attribute.text());
      out.push_back(found.is_undefined() && !otherwise.is_undefined() ? otherwise : found);
    } else if (name.text() != nullptr) {
      out.push_back(apply_filter(work, *name.text(), each, behind(arguments, 1)));
    } else {
      return work.fail("'map' needs the name of a filter or an attribute");
    }
  }
  return work.made(std::move(out));
}

// select, reject, selectattr, rejectattr: those of which a test is true, or not.
Value filtered(Work& work, const Value& value, const Arguments& arguments, bool wanted, bool by_attribute) {
  const Value elements = elements_of(work, value);
  const Value attribute = by_attribute ? arguments.get(0, "") : Value();
  const Value test = arguments.get(by_attribute ? 1 : 0, "");
  if (by_attribute && attribute.text() == nullptr) return work.fail("the name of an attribute is missing");
  const Arguments rest = behind(arguments, by_attribute ? 2 : 1);
  List out;
  for (std::size_t at = 0; elements.list() != nullptr && at < elements.list()->size() && work.step(); ++at) {
    const Value& each = (*elements.list())[at];
    const Value looked_at = by_attribute ? value_at(work, each, *attribute.text()) : each;
    const bool holds =
        test.text() == nullptr ? looked_at.truth() : apply_test(work, *test.text(), looked_at, rest);
    if (holds == wanted) out.push_back(each);
  }
  return work.made(std::move(out));
}
Value filter_select(Work& work, const Value& value, const Arguments& arguments) {
  return filtered(work, value, arguments, true, false);
}
Value filter_reject(Work& work, const Value& value, const Arguments& arguments) {
  return filtered(work, value, arguments, false, false);
}
Value filter_selectattr(Work& work, const Value& value, const Arguments& arguments) {
  return filtered(work, value, arguments, true, true);
}
Value filter_rejectattr(Work& work, const Value& value, const Arguments& arguments) {
  return filtered(work, value, arguments, false, true);
}

Value filter_default(Work&, const Value& value, const Arguments& arguments) {
  const bool also_false = arguments.get(1, "boolean").truth();
  const Value otherwise = arguments.has(0, "default_value") ? arguments.get(0, "default_value") : Value("");
  return value.is_undefined() || (also_false && !value.truth()) ? otherwise : value;
}

Value filter_safe(Work&, const Value& value, const Arguments&) { return value; }

constexpr std::array<std::pair<std::string_view, Filter>, 35> filters{{
    {"abs", filter_abs},
    {"capitalize", filter_capitalize},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"float", filter_float},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_lower},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", filter_unique},
    {"upper", filter_upper},
}};

// Those that look at one element of a list at most: templates ask for the length of a long conversation at
// each of its messages.
bool only_glances(std::string_view name) {
  static constexpr std::array<std::string_view, 7> glances{"count", "d",      "default", "first",
                                                           "last",  "length", "safe"};
  return std::find(glances.begin(), glances.end(), name) != glances.end();
}

}  // namespace

Value apply_filter(Work& work, std::string_view name, const Value& value, const Arguments& arguments) {
  const bool is_cheap = value.text() == nullptr && only_glances(name);
  if (is_cheap ? !work.step() : !work.step_through(value)) return {};
  if (!only_glances(name) && !step_through(work, arguments)) return {};
  for (const auto& [known, filter] : filters) {
    if (known == name) return filter(work, value, arguments);
  }
  return work.fail("the filter '" + std::string(name) + "' is not known here");
}

}  // namespace tutti::serve::chat
