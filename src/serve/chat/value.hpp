// What the expressions of a chat template work with: Python's values, as far as templates see them. Texts,
// lists and maps are shared and never change, so that a copy is cheap; only a namespace does. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/json/value.hpp"

namespace tutti::serve::chat {

class Value;
struct Macro;  // syntax.hpp
using List = std::vector<Value>;
using Map = std::vector<std::pair<std::string, Value>>;  // in the order of their making, each key once
using Variables = std::map<std::string, Value, std::less<>>;

constexpr std::size_t unbounded = std::numeric_limits<std::size_t>::max() / 2;

// What a name stands for that nothing was given: it is written as nothing, and false.
struct Undefined {
  std::string name;
};

// With what keeps templates from building values that take forever to write or to free.
struct ListBody;
struct MapBody;

// What `loop` stands for inside a loop.
struct Loop {
  std::shared_ptr<const ListBody> items;
  std::size_t at = 0;
};

// One that every template knows, such as range.
struct Function {
  std::string_view name;  // lives as long as the program
};

class Value {
 public:
  Value() : held_(Undefined{}) {}
  Value(std::nullptr_t) : held_(nullptr) {}
  explicit Value(Undefined undefined) : held_(std::move(undefined)) {}
  template <class T>
  requires std::is_same_v<T, bool> Value(T boolean) : held_(boolean) {}
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Value(T whole)
      : held_(static_cast<std::int64_t>(whole)) {}
  Value(double number) : held_(number) {}
  Value(std::string text) : held_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List list);
  Value(Map map);
  explicit Value(std::shared_ptr<Variables> space) : held_(std::move(space)) {}
  explicit Value(std::shared_ptr<const Loop> loop) : held_(std::move(loop)) {}
  explicit Value(const Macro* macro) : held_(macro) {}
  explicit Value(Function function) : held_(function) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(held_); }
  bool is_number() const { return whole() != nullptr || number() != nullptr || boolean() != nullptr; }
  // Each is null if the value is of another kind.
  const Undefined* undefined() const { return std::get_if<Undefined>(&held_); }
  const bool* boolean() const { return std::get_if<bool>(&held_); }
  const std::int64_t* whole() const { return std::get_if<std::int64_t>(&held_); }
  const double* number() const { return std::get_if<double>(&held_); }
  const std::string* text() const { return pointed<std::shared_ptr<const std::string>>(); }
  const List* list() const;
  std::shared_ptr<const ListBody> shared_list() const;
  const Map* map() const;
  Variables* space() const { return pointed<std::shared_ptr<Variables>>(); }
  const Loop* loop() const { return pointed<std::shared_ptr<const Loop>>(); }
  const Macro* macro() const {
    const auto* held = std::get_if<const Macro*>(&held_);
    return held == nullptr ? nullptr : *held;
  }

  const Function* function() const { return std::get_if<Function>(&held_); }

  bool truth() const;
  // The bytes that it takes, those of its elements counted each time, and how deep they are nested. What
  // refers to variables has no bound: in a list it could hold itself.
  std::size_t weight() const;
  std::size_t depth() const;
  // "a text", "a list": for messages.
  std::string_view kind() const;
  // The value of a map's key; null if there is none, or if this is no map.
  const Value* find(std::string_view key) const;

 private:
  template <class Pointer>
  auto pointed() const -> decltype(std::declval<const Pointer&>().get()) {
    const auto* held = std::get_if<Pointer>(&held_);
    return held == nullptr ? nullptr : held->get();
  }

  std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const ListBody>, std::shared_ptr<const MapBody>, std::shared_ptr<Variables>,
               std::shared_ptr<const Loop>, const Macro*, Function>
      held_;
};

struct ListBody {
  List items;
  std::size_t weight;
  std::size_t depth;
};
struct MapBody {
  Map items;
  std::size_t weight;
  std::size_t depth;
};

inline const List* Value::list() const {
  const auto* body = pointed<std::shared_ptr<const ListBody>>();
  return body == nullptr ? nullptr : &body->items;
}
inline const Map* Value::map() const {
  const auto* body = pointed<std::shared_ptr<const MapBody>>();
  return body == nullptr ? nullptr : &body->items;
}

// A number as a double; booleans count, as in Python.
double as_number(const Value& value);

bool equal(const Value& a, const Value& b);
// -1, 0 or 1 of two numbers or two texts; lists one by one.
bool comparable(const Value& a, const Value& b);
int compare(const Value& a, const Value& b);

// As Python's str() and repr() write it.
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
std::string number_text(double number);

using TextChange = std::function<std::string(std::string_view)>;
// Members stand in the order in which the text had them. `change`, if there is one, is done to all texts and
// keys.
Value from_json(const json::Value& value, const TextChange& change = {});

struct JsonStyle {
  std::int64_t indent = -1;  // blanks for each level; -1 writes all on one line
  std::string between_items = ", ";
  std::string behind_key = ": ";
  bool sorted = false;
  bool ascii = false;
};
// As Python's json.dumps() writes it. False if it holds what JSON has not. Nothing more is written once there
// are more than so many bytes.
bool write_json(const Value& value, const JsonStyle& style, std::size_t bytes_max, std::string& out);

}  // namespace tutti::serve::chat
