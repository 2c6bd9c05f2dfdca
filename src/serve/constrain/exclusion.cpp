#include "serve/constrain/exclusion.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/json/write.hpp"

namespace tutti::serve {
namespace {

constexpr int hops_max = 8;  // of names and alternatives; what lies behind is not looked at
constexpr std::uint64_t look_work = 64;
// Beyond it a double does not tell one whole number from the next.
constexpr double whole_in_double_max = 9007199254740992.0;

constexpr std::uint8_t object_bit = 1;
constexpr std::uint8_t list_bit = 2;
constexpr std::uint8_t all_bits = 63;

// Whole numbers are numbers.
std::uint8_t bit_of(std::string_view type) {
  constexpr std::array<std::string_view, 6> types{"object", "array", "string", "number", "boolean", "null"};
  const auto found = std::find(types.begin(), types.end(), type == "integer" ? "number" : type);
  return found == types.end() ? all_bits : static_cast<std::uint8_t>(1U << (found - types.begin()));
}

std::uint8_t bit_of_value(const json::Value& value) {
  if (value.object() != nullptr) return object_bit;
  if (value.list() != nullptr) return list_bit;
  if (value.text() != nullptr) return bit_of("string");
  if (value.boolean()) return bit_of("boolean");
  return bit_of(value.is_null() ? "null" : "number");
}

// 1 and 1.0 are the same.
std::string text_of(const json::Value& value) {
  const auto number = value.number();
  if (number && std::floor(*number) == *number && std::abs(*number) < whole_in_double_max)
    return std::to_string(static_cast<std::int64_t>(*number));
  return json::write(value);
}

bool are_apart(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  for (auto a = one.begin(), b = other.begin(); a != one.end() && b != other.end();) {
    if (*a == *b) return false;
    ++(*a < *b ? a : b);
  }
  return true;
}

class Look {
 public:
  Look(const Resolve& resolve, Effort& effort) : resolve_(resolve), effort_(effort) {}

  Takes at(const json::Value& schema, int hops) {
    Takes anything{.taken = all_bits, .written = all_bits, .constants = {}, .properties = {}};
    const json::Object* const object = schema.object();
    if (object == nullptr || hops > hops_max || !effort_.spend(look_work)) return anything;
    if (const json::Value* const name = object->find("$ref")) {
      const std::string* const path = name->text();
      const json::Value* const named =
          path != nullptr && path->starts_with('#') ? resolve_(std::string_view(*path).substr(1)) : nullptr;
      return named == nullptr ? anything : at(*named, hops + 1);
    }
    const json::Value* const constant = object->find("const");
    const json::Value* const several = object->find("enum");
    if (constant != nullptr) return of_values({*constant});
    if (several != nullptr && several->list() != nullptr) return of_values(*several->list());
    for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
      const json::Value* const choices = object->find(key);
      if (choices != nullptr && choices->list() != nullptr) return of_any(*choices->list(), hops);
    }
    return of_types(*object, hops);
  }

 private:
  Takes of_values(const json::Array& values) {
    Takes seen;
    seen.constants.emplace();
    for (const json::Value& value : values) {
      seen.taken |= bit_of_value(value);
      seen.constants->push_back(text_of(value));
    }
    effort_.spend(look_work * values.size());
    seen.written = seen.taken;
    // Lists and objects have more ways to be alike than their texts.
    if ((seen.taken & (object_bit | list_bit)) != 0) seen.constants.reset();
    if (seen.constants) std::ranges::sort(*seen.constants);
    return seen;
  }

  Takes of_any(const json::Array& choices, int hops) {
    Takes all;
    all.constants.emplace();
    for (const json::Value& choice : choices) {
      Takes one = at(choice, hops + 1);
      all.taken |= one.taken;
      all.written |= one.written;
      if (!one.constants) all.constants.reset();
      if (all.constants) std::ranges::move(*one.constants, std::back_inserter(*all.constants));
    }
    if (all.constants) std::ranges::sort(*all.constants);
    return all;
  }

  Takes of_types(const json::Object& schema, int hops) {
    Takes seen;
    const json::Value* const type = schema.find("type");
    if (type != nullptr && type->text() != nullptr) {
      seen.taken = seen.written = bit_of(*type->text());
    } else if (type != nullptr && type->list() != nullptr) {
      for (const json::Value& one : *type->list())
        seen.taken |= one.text() == nullptr ? all_bits : bit_of(*one.text());
      seen.written = seen.taken;
    } else {
      const auto says = [&](std::string_view key) { return schema.find(key) != nullptr; };
      const bool of_objects = says("properties") || says("required") || says("additionalProperties");
      seen.taken = all_bits;
      seen.written = of_objects ? object_bit : says("items") ? list_bit : all_bits;
    }
    const json::Value* const required = schema.find("required");
    const json::Value* const properties = schema.find("properties");
    if (required == nullptr || required->list() == nullptr || properties == nullptr) return seen;
    for (const json::Value& name : *required->list()) {
      const json::Value* const property = name.text() == nullptr ? nullptr : properties->find(*name.text());
      if (property == nullptr) continue;
      Takes inside = at(*property, hops + 1);
      if (inside.constants) seen.properties.emplace(*name.text(), std::move(*inside.constants));
    }
    return seen;
  }

  const Resolve& resolve_;
  Effort& effort_;
};

}  // namespace

Takes takes(const json::Value& schema, const Resolve& resolve, Effort& effort) {
  return Look(resolve, effort).at(schema, 0);
}

bool exclude_each_other(const Takes& one, const Takes& other) {
  const int both = (one.written & other.taken) | (one.taken & other.written);
  if (both == 0) return true;
  if (one.constants && other.constants) return are_apart(*one.constants, *other.constants);
  if (both != object_bit) return false;
  return std::ranges::any_of(one.properties, [&](const auto& property) {
    const auto same = other.properties.find(property.first);
    return same != other.properties.end() && are_apart(property.second, same->second);
  });
}

std::uint64_t work_to_compare(const Takes& one, const Takes& other) {
  std::uint64_t work = 1;
  for (const Takes* const each : {&one, &other}) {
    if (each->constants) work += each->constants->size();
    for (const auto& [name, constants] : each->properties) work += 1 + constants.size();
  }
  return work;
}

}  // namespace tutti::serve
