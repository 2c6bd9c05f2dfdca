#include "serve/chat/value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.hpp"

namespace tutti::serve::chat {
namespace {

// Python writes numbers from here on, and below the other, with an exponent.
constexpr int exponent_from = 16;
constexpr int exponent_below = -4;

std::string quoted(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (const char letter : text) {
    static constexpr std::string_view escaped = "\n\r\t\\";
    static constexpr std::string_view escapes = "nrt\\";
    static constexpr std::string_view digits = "0123456789abcdef";
    const std::size_t which = escaped.find(letter);
    const auto byte = static_cast<unsigned char>(letter);
    if (which != std::string_view::npos) {
      out += '\\';
      out += escapes[which];
    } else if (letter == quote) {
      out += '\\';
      out += letter;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += digits[byte >> 4U];
      out += digits[byte & 0xFU];
    } else {
      out += letter;
    }
  }
  return out + quote;
}

template <class Items, class Write>
std::string joined(const Items& items, char open, char close, Write write) {
  std::string out(1, open);
  for (const auto& item : items) {
    if (out.size() > 1) out += ", ";
    out += write(item);
  }
  return out + close;
}

std::string repr_of_map(const Map& map) {
  return joined(map, '{', '}',
                [](const auto& item) { return quoted(item.first) + ": " + to_repr(item.second); });
}

int sign(double difference) { return difference < 0 ? -1 : difference > 0 ? 1 : 0; }

}  // namespace

Value::Value(List list) {
  std::size_t weight = sizeof(Value);
  std::size_t depth = 0;
  for (const Value& each : list) {
    weight = std::min(weight + each.weight(), unbounded);
    depth = std::max(depth, each.depth());
  }
  held_ = std::make_shared<const ListBody>(ListBody{std::move(list), weight, depth + 1});
}

Value::Value(Map map) {
  std::size_t weight = sizeof(Value);
  std::size_t depth = 0;
  for (const auto& [key, value] : map) {
    weight = std::min(weight + sizeof(std::string) + key.size() + value.weight(), unbounded);
    depth = std::max(depth, value.depth());
  }
  held_ = std::make_shared<const MapBody>(MapBody{std::move(map), weight, depth + 1});
}

std::shared_ptr<const ListBody> Value::shared_list() const {
  const auto* held = std::get_if<std::shared_ptr<const ListBody>>(&held_);
  return held == nullptr ? nullptr : *held;
}

std::size_t Value::weight() const {
  if (space() != nullptr || loop() != nullptr) return unbounded;
  if (const auto* body = pointed<std::shared_ptr<const ListBody>>()) return body->weight;
  if (const auto* body = pointed<std::shared_ptr<const MapBody>>()) return body->weight;
  return sizeof(Value) + (text() == nullptr ? 0 : text()->size());
}

std::size_t Value::depth() const {
  if (const auto* body = pointed<std::shared_ptr<const ListBody>>()) return body->depth;
  const auto* body = pointed<std::shared_ptr<const MapBody>>();
  return body == nullptr ? 0 : body->depth;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* held = boolean()) return *held;
  if (const auto* held = whole()) return *held != 0;
  if (const double* held = number()) return *held != 0;
  if (const std::string* held = text()) return !held->empty();
  if (const List* held = list()) return !held->empty();
  if (const Map* held = map()) return !held->empty();
  return true;
}

std::string_view Value::kind() const {
  static constexpr std::array<std::string_view, 12> kinds{"undefined",   "none",   "a boolean", "a number",
                                                          "a number",    "a text", "a list",    "a map",
                                                          "a namespace", "a loop", "a macro",   "a function"};
  return kinds[held_.index()];
}

const Value* Value::find(std::string_view key) const {
  const Map* const held = map();
  if (held == nullptr) return nullptr;
  const auto found =
      std::find_if(held->begin(), held->end(), [&](const auto& item) { return item.first == key; });
  return found == held->end() ? nullptr : &found->second;
}

double as_number(const Value& value) {
  if (const auto* whole = value.whole()) return static_cast<double>(*whole);
  if (const bool* boolean = value.boolean()) return *boolean ? 1 : 0;
  return value.number() == nullptr ? 0 : *value.number();
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.whole() != nullptr && b.whole() != nullptr) return *a.whole() == *b.whole();
    return as_number(a) == as_number(b);
  }
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  if (a.list() != nullptr && b.list() != nullptr)
    return a.list() == b.list() ||
           std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(), equal);
  if (a.map() != nullptr && b.map() != nullptr) {
    const auto in_b = [&](const auto& item) {
      const Value* const other = b.find(item.first);
      return other != nullptr && equal(item.second, *other);
    };
    return a.map()->size() == b.map()->size() && std::all_of(a.map()->begin(), a.map()->end(), in_b);
  }
  if (a.space() != nullptr) return a.space() == b.space();
  if (a.macro() != nullptr) return a.macro() == b.macro();
  if (a.function() != nullptr) return b.function() != nullptr && a.function()->name == b.function()->name;
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool comparable(const Value& a, const Value& b) {
  if (a.list() != nullptr && b.list() != nullptr) {
    const std::size_t both = std::min(a.list()->size(), b.list()->size());
    return std::equal(a.list()->begin(), a.list()->begin() + static_cast<std::ptrdiff_t>(both),
                      b.list()->begin(), comparable);
  }
  return (a.is_number() && b.is_number()) || (a.text() != nullptr && b.text() != nullptr);
}

int compare(const Value& a, const Value& b) {
  if (a.text() != nullptr) return sign(a.text()->compare(*b.text()));
  if (a.list() != nullptr) {
    for (std::size_t at = 0; at < std::min(a.list()->size(), b.list()->size()); ++at) {
      if (const int order = compare((*a.list())[at], (*b.list())[at])) return order;
    }
    return sign(static_cast<double>(a.list()->size()) - static_cast<double>(b.list()->size()));
  }
  if (a.whole() != nullptr && b.whole() != nullptr)
    return *a.whole() < *b.whole() ? -1 : *a.whole() > *b.whole() ? 1 : 0;
  return sign(as_number(a) - as_number(b));
}

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::array<char, 64> room{};
  const auto text = [&](const char* end) {
    return std::string(room.data(), static_cast<std::size_t>(end - room.data()));
  };
  std::string scientific =
      text(std::to_chars(room.begin(), room.end(), number, std::chars_format::scientific).ptr);
  int exponent = 0;
  const std::size_t e = scientific.find('e');
  const std::size_t digits = e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(scientific.data() + digits, scientific.data() + scientific.size(), exponent);
  if (exponent >= exponent_from || exponent < exponent_below) return scientific;
  std::string fixed = text(std::to_chars(room.begin(), room.end(), number, std::chars_format::fixed).ptr);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string to_text(const Value& value) {
  return value.text() != nullptr ? *value.text() : value.is_undefined() ? "" : to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const bool* boolean = value.boolean()) return *boolean ? "True" : "False";
  if (const auto* whole = value.whole()) return std::to_string(*whole);
  if (const double* number = value.number()) return number_text(*number);
  if (const std::string* text = value.text()) return quoted(*text);
  if (const List* list = value.list()) return joined(*list, '[', ']', to_repr);
  if (const Map* map = value.map()) return repr_of_map(*map);
  return "<" + std::string(value.kind()) + ">";
}

Value from_json(const json::Value& value, const TextChange& change) {
  const auto changed = [&](const std::string& text) { return change ? change(text) : text; };
  if (const auto boolean = value.boolean()) return *boolean;
  if (const auto whole = value.whole()) return *whole;
  if (const auto number = value.number()) return *number;
  if (value.text() != nullptr) return changed(*value.text());
  if (const json::Array* list = value.list()) {
    List made;
    for (const json::Value& each : *list) made.push_back(from_json(each, change));
    return made;
  }
  if (const json::Object* object = value.object()) {
    std::vector<const json::Member*> members;
    for (const json::Member& member : *object) members.push_back(&member);
    std::stable_sort(members.begin(), members.end(),
                     [](const json::Member* a, const json::Member* b) { return a->place < b->place; });
    Map made;
    for (const json::Member* member : members)
      made.emplace_back(changed(member->key), from_json(member->value, change));
    return made;
  }
  return nullptr;
}

}  // namespace tutti::serve::chat
