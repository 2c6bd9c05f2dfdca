#include "base/json/value.hpp"

#include <algorithm>
#include <limits>

#include "base/check.hpp"

namespace tutti::json {
namespace {

bool is_before(const Member& member, std::string_view key) { return member.key < key; }

}  // namespace

Object::Object() = default;
Object::Object(std::initializer_list<Member> members) : Object(std::vector<Member>(members)) {}
Object::Object(std::vector<Member> members) : members_(std::move(members)) {
  std::ranges::sort(members_, {}, &Member::key);
  TUTTI_CHECK(std::ranges::adjacent_find(members_, {}, &Member::key) == members_.end(),
              "an object has each key once");
}
Object::Object(const Object&) = default;
Object::Object(Object&&) noexcept = default;
Object& Object::operator=(const Object&) = default;
Object& Object::operator=(Object&&) noexcept = default;
Object::~Object() = default;

const Value* Object::find(std::string_view key) const {
  const auto at = std::lower_bound(members_.begin(), members_.end(), key, is_before);
  return at != members_.end() && at->key == key ? &at->value : nullptr;
}

Value& Object::operator[](std::string_view key) {
  auto at = std::lower_bound(members_.begin(), members_.end(), key, is_before);
  if (at == members_.end() || at->key != key) at = members_.insert(at, Member{std::string(key), nullptr});
  return at->value;
}

void Object::erase(std::string_view key) {
  std::erase_if(members_, [&](const Member& member) { return member.key == key; });
}

std::size_t Object::size() const { return members_.size(); }
const Member* Object::begin() const { return members_.data(); }
const Member* Object::end() const { return members_.data() + members_.size(); }

Value::Value(Array list) : value_(std::move(list)) {}
Value::Value(Object object) : value_(std::move(object)) {}
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

std::optional<bool> Value::boolean() const {
  const auto* held = std::get_if<bool>(&value_);
  return held == nullptr ? std::nullopt : std::optional(*held);
}

std::optional<std::int64_t> Value::whole() const {
  if (const auto* negative = std::get_if<std::int64_t>(&value_)) return *negative;
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  const auto* held = std::get_if<std::uint64_t>(&value_);
  if (held == nullptr || *held > most) return std::nullopt;
  return static_cast<std::int64_t>(*held);
}

std::optional<std::uint64_t> Value::count() const {
  const auto* held = std::get_if<std::uint64_t>(&value_);
  return held == nullptr ? std::nullopt : std::optional(*held);
}

std::optional<double> Value::number() const {
  if (const auto* held = std::get_if<double>(&value_)) return *held;
  if (const auto* held = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*held);
  if (const auto* held = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*held);
  return std::nullopt;
}

const std::string* Value::text() const { return std::get_if<std::string>(&value_); }
const Array* Value::list() const { return std::get_if<Array>(&value_); }
Array* Value::list() { return std::get_if<Array>(&value_); }
const Object* Value::object() const { return std::get_if<Object>(&value_); }
Object* Value::object() { return std::get_if<Object>(&value_); }

const Value* Value::find(std::string_view key) const {
  return object() == nullptr ? nullptr : object()->find(key);
}

Value& Value::operator[](std::string_view key) {
  TUTTI_CHECK(object() != nullptr, "a value that is no object has no members");
  return (*object())[key];
}

Value& Value::operator[](std::size_t index) {
  TUTTI_CHECK(list() != nullptr && index < list()->size(), "a list has no such element");
  return (*list())[index];
}

bool operator==(const Value& a, const Value& b) {
  if (a.value_.index() != b.value_.index() && a.number() && b.number()) return a.number() == b.number();
  if (a.value_.index() != b.value_.index()) return false;
  if (a.object() != nullptr) return std::ranges::equal(*a.object(), *b.object());
  if (a.list() != nullptr) return *a.list() == *b.list();
  if (a.text() != nullptr) return *a.text() == *b.text();
  return a.boolean() == b.boolean() && a.whole() == b.whole() && a.count() == b.count() &&
         a.number() == b.number();
}

}  // namespace tutti::json
