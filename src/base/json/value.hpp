// A JSON value for the files of a training: what the workers read and write, where there is libtorch and
// nothing else. Cheap to include. The controller, the CLI and the benchmarks speak JSON over HTTP with
// nlohmann's library, which they have and workers do not.
//
// Values, no shared state: safe on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

namespace tutti::json {

class Value;
struct Member;
using Array = std::vector<Value>;

// Members by their keys, each key once. Sorted, so that the same members are the same bytes when they are
// written.
class Object {
 public:
  Object();
  // In any order. Two equal keys are a bug.
  Object(std::initializer_list<Member> members);
  explicit Object(std::vector<Member> members);
  Object(const Object&);
  Object(Object&&) noexcept;
  Object& operator=(const Object&);
  Object& operator=(Object&&) noexcept;
  ~Object();

  const Value* find(std::string_view key) const;  // null if there is none
  // Null is put in if there is none. Of many members, make a vector first.
  Value& operator[](std::string_view key);
  void erase(std::string_view key);

  std::size_t size() const;
  const Member* begin() const;
  const Member* end() const;

 private:
  std::vector<Member> members_;
};

class Value {
 public:
  Value(std::nullptr_t = nullptr) {}
  template <class T>
  requires std::is_same_v<T, bool> Value(T boolean) : value_(boolean) {}
  // Kept to the last digit, up to 64 bits.
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Value(T whole) {
    if (whole < 0) {
      value_ = static_cast<std::int64_t>(whole);
    } else {
      value_ = static_cast<std::uint64_t>(whole);
    }
  }
  Value(double number) : value_(number) {}
  Value(std::string text) : value_(std::move(text)) {}
  Value(std::string_view text) : value_(std::string(text)) {}
  Value(const char* text) : value_(std::string(text)) {}
  Value(Array list);
  Value(Object object);
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();

  // Each is nothing if the value is of another kind.
  bool is_null() const { return value_.index() == 0; }
  std::optional<bool> boolean() const;
  std::optional<std::int64_t> whole() const;   // written without point and exponent, and it fits
  std::optional<std::uint64_t> count() const;  // the same, and not negative
  std::optional<double> number() const;        // any number
  const std::string* text() const;
  const Array* list() const;
  Array* list();
  const Object* object() const;
  Object* object();

  // The member of an object; null if there is none, or if this is no object.
  const Value* find(std::string_view key) const;
  // Of an object or a list; anything else is a bug.
  Value& operator[](std::string_view key);
  Value& operator[](std::size_t index);

  // Numbers are equal if they stand for the same: 0 and 0.0.
  friend bool operator==(const Value& a, const Value& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_;
};

struct Member {
  std::string key;
  Value value;
  std::uint32_t place =
      0;  // among its neighbours in the text that was read, for those who must keep that order

  friend bool operator==(const Member& a, const Member& b) { return a.key == b.key && a.value == b.value; }
};

// `for (const auto& [key, value] : object)`: nearly nobody asks for the place.
template <std::size_t at>
const auto& get(const Member& member) {
  if constexpr (at == 0) {
    return member.key;
  } else {
    return member.value;
  }
}

// A list of numbers or texts.
template <class Items>
Array array_of(const Items& items) {
  return Array(items.begin(), items.end());
}

}  // namespace tutti::json

template <>
struct std::tuple_size<tutti::json::Member> : std::integral_constant<std::size_t, 2> {};
template <std::size_t at>
struct std::tuple_element<at, tutti::json::Member> {
  using type = std::conditional_t<at == 0, const std::string, const tutti::json::Value>;
};
