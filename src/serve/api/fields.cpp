#include "serve/api/fields.hpp"

#include <algorithm>
#include <cmath>

#include "base/json/write.hpp"

namespace tutti::serve::api {
namespace {

// Beyond it a double does not tell one whole number from the next.
constexpr double whole_in_double_max = 9007199254740992.0;

// Whole numbers without a point, others with as many digits as they need.
std::string shown(double number) {
  return number == std::floor(number) && std::abs(number) < 1e15
             ? std::to_string(static_cast<std::int64_t>(number))
             : json::write(number);
}

}  // namespace

std::optional<std::int64_t> whole_of(const json::Value& value) {
  if (const auto whole = value.whole()) return whole;
  const auto number = value.number();
  if (!number || *number != std::floor(*number) || std::abs(*number) > whole_in_double_max)
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

const json::Value* Fields::find(std::string_view name) const {
  const json::Value* const value = object_.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Fields::fail(std::string_view name, std::string why) {
  if (!problem_) problem_ = invalid(std::move(why)).within(name);
}

void Fields::number(std::string_view name, float& target, double low, double high) {
  const json::Value* const value = find(name);
  if (value == nullptr) return;
  const auto number = value->number();
  if (!number || !(*number >= low && *number <= high))
    return fail(name, "must be a number from " + shown(low) + " to " + shown(high));
  target = static_cast<float>(*number);
}

std::optional<std::int64_t> Fields::whole_between(std::string_view name, std::int64_t low,
                                                  std::int64_t high) {
  const json::Value* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto whole = whole_of(*value);
  if (whole && *whole >= low && *whole <= high) return whole;
  fail(name, "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return std::nullopt;
}

void Fields::whole(std::string_view name, std::int32_t& target, std::int64_t low, std::int64_t high) {
  if (const auto value = whole_between(name, low, high)) target = static_cast<std::int32_t>(*value);
}

void Fields::whole(std::string_view name, std::int64_t& target, std::int64_t low, std::int64_t high) {
  if (const auto value = whole_between(name, low, high)) target = *value;
}

void Fields::whole(std::string_view name, std::optional<std::int32_t>& target, std::int64_t low,
                   std::int64_t high) {
  if (const auto value = whole_between(name, low, high)) target = static_cast<std::int32_t>(*value);
}

void Fields::toggle(std::string_view name, bool& target) {
  const json::Value* const value = find(name);
  if (value == nullptr) return;
  const auto boolean = value->boolean();
  if (!boolean) return fail(name, "must be true or false");
  target = *boolean;
}

void Fields::text(std::string_view name, std::string& target, std::size_t bytes_max) {
  const json::Value* const value = find(name);
  if (value == nullptr) return;
  if (value->text() == nullptr) return fail(name, "must be a text");
  if (value->text()->size() > bytes_max)
    return fail(name, "must have at most " + std::to_string(bytes_max) + " bytes");
  target = *value->text();
}

void Fields::only(std::string_view name, std::initializer_list<json::Value> values, std::string_view why) {
  const json::Value* const value = find(name);
  if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) return;
  fail(name, std::string(why));
}

}  // namespace tutti::serve::api
