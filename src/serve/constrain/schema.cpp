#include "serve/constrain/schema.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "serve/constrain/decimals.hpp"
#include "serve/constrain/exclusion.hpp"
#include "serve/constrain/json_parts.hpp"
#include "serve/constrain/key_order.hpp"
#include "serve/constrain/pattern.hpp"
#include "serve/constrain/words.hpp"

namespace tutti::serve {
namespace {

// What says nothing about which texts are taken.
constexpr std::array<std::string_view, 13> remarks{
    "title",    "description", "default", "examples",   "$schema", "$id",        "$comment",
    "readOnly", "writeOnly",   "format",  "deprecated", "$defs",   "definitions"};

constexpr std::uint64_t value_work = 64;  // to read one schema, in edges that could be looked at meanwhile

using Known = std::vector<std::string_view>;

// What is held of values of this type, beside that; nothing if there is no such type.
std::optional<Known> keys_of(std::string_view type) {
  if (type == "object") return Known{"properties", "required", "additionalProperties"};
  if (type == "array") return Known{"items", "minItems", "maxItems"};
  if (type == "string") return Known{"minLength", "maxLength", "pattern"};
  if (type == "integer" || type == "number")
    return Known{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
  if (type == "boolean" || type == "null") return Known();
  return std::nullopt;
}

bool is_of_type(const json::Value& value, std::string_view type) {
  if (type == "object") return value.object() != nullptr;
  if (type == "array") return value.list() != nullptr;
  if (type == "string") return value.text() != nullptr;
  if (type == "boolean") return value.boolean().has_value();
  if (type == "null") return value.is_null();
  const auto number = value.number();
  return number && (type == "number" || std::floor(*number) == *number);
}

class Compiler {
 public:
  Compiler(Grammar& grammar, const json::Value& root, const KeyOrder& order, Effort& effort)
      : grammar_(grammar), parts_(grammar), root_(root), order_(order), effort_(effort) {}

  Result<NodeId> root(NodeId from) {
    auto after = reference("", from);
    // One after the other and not inside one another: a long chain of names is no deep stack.
    for (std::size_t nth = 0; after && nth < named_.size(); ++nth) {
      const Named next = named_[nth];
      auto end = value(*next.schema, next.path, next.part, 0);
      if (!end) return end;
      grammar_.end_part(*end);
    }
    return after;
  }

 private:
  // A part of the document that has to be written.
  struct Named {
    std::string path;
    const json::Value* schema = nullptr;
    NodeId part = 0;
  };

  static Error broken(const std::string& path, const std::string& what) {
    return invalid("the schema is refused at '#" + path + "': " + what);
  }

  // All that is said is known here, or is a remark.
  Result<> check_keys(const json::Object& schema, const std::string& path, const Known& known) {
    for (const json::Member& member : schema) {
      const bool fine = std::find(known.begin(), known.end(), member.key) != known.end() ||
                        std::find(remarks.begin(), remarks.end(), member.key) != remarks.end();
      if (!fine) return broken(path, "'" + member.key + "' is not known here");
    }
    return {};
  }

  Result<std::int64_t> count(const json::Object& schema, const std::string& path, std::string_view key,
                             std::int64_t otherwise, std::int64_t most) {
    const json::Value* value = schema.find(key);
    if (value == nullptr) return otherwise;
    const auto whole = value->whole();
    if (!whole || *whole < 0 || *whole > most)
      return broken(path, std::string(key) + " is a number between 0 and " + std::to_string(most));
    return *whole;
  }

  // A part of the document that others name; written once, called wherever it is named.
  Result<NodeId> reference(const std::string& path, NodeId from) {
    auto known = references_.find(path);
    if (known == references_.end()) {
      const json::Value* schema = resolve(path);
      if (schema == nullptr) return broken(path, "there is no such part");
      const NodeId part = grammar_.add();
      known = references_.emplace(path, part).first;
      named_.push_back({path, schema, part});
    }
    const NodeId after = grammar_.add();
    grammar_.call(from, known->second, after, true);
    return after;
  }

  const json::Value* resolve(std::string_view path) const {
    const json::Value* here = &root_;
    while (!path.empty()) {
      path.remove_prefix(1);
      const std::string_view step = path.substr(0, path.find('/'));
      path.remove_prefix(step.size());
      here = here->find(unescaped(step));
      if (here == nullptr) return nullptr;
    }
    return here;
  }

  Result<NodeId> value(const json::Value& schema, const std::string& path, NodeId from, int depth) {
    if (depth > schema_depth_max)
      return broken(path, "more than " + std::to_string(schema_depth_max) + " schemas inside one another");
    if (grammar_.full()) return broken(path, "it is too large");
    if (path.size() > schema_path_bytes_max)
      return broken(path.substr(0, 64) + "...",
                    "more than " + std::to_string(schema_path_bytes_max) + " bytes of keys lead there");
    if (!effort_.spend(value_work)) return effort_.refusal();
    if (const auto boolean = schema.boolean()) {
      if (!*boolean) return broken(path, "false takes nothing");
      return parts_.value(from);
    }
    const json::Object* object = schema.object();
    if (object == nullptr) return broken(path, "a schema is an object");
    if (object->find("$ref") != nullptr) return named(*object, path, from);
    if (is_constant(*object)) {
      auto texts = constants(*object, path);
      if (!texts) return std::move(texts).error();
      return add_words(grammar_, from, std::move(*texts));
    }
    for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
      if (object->find(key) != nullptr) return alternatives(*object, path, key, from, depth);
    }
    return typed(*object, path, from, depth);
  }

  Result<NodeId> named(const json::Object& schema, const std::string& path, NodeId from) {
    if (auto checked = check_keys(schema, path, {"$ref"}); !checked) return std::move(checked).error();
    const std::string* target = schema.find("$ref")->text();
    if (target == nullptr || !target->starts_with('#') || (target->size() > 1 && (*target)[1] != '/'))
      return broken(path, "a $ref names a part of this schema, as '#/$defs/name'");
    return reference(target->substr(1), from);
  }

  static bool is_constant(const json::Object& schema) {
    return schema.find("$ref") == nullptr &&
           (schema.find("const") != nullptr || schema.find("enum") != nullptr);
  }

  // The texts that are a value of the const, of the enum and of the type, as far as there are these.
  Result<std::vector<std::string>> constants(const json::Object& schema, const std::string& path) {
    if (auto checked = check_keys(schema, path, {"const", "enum", "type"}); !checked)
      return std::move(checked).error();
    const json::Value* const one = schema.find("const");
    json::Array values;
    if (const json::Value* const several = schema.find("enum")) {
      if (several->list() != nullptr) values = *several->list();
      if (values.empty() || values.size() > schema_values_max)
        return broken(path, "an enum has 1 to " + std::to_string(schema_values_max) + " values");
      if (one != nullptr) std::erase_if(values, [&](const json::Value& value) { return value != *one; });
    } else {
      values.push_back(*one);
    }
    if (schema.find("type") != nullptr) {
      const auto types = types_of(schema, path);
      if (!types) return types.error();
      std::erase_if(values, [&](const json::Value& value) {
        return std::ranges::none_of(*types, [&](const auto& type) { return is_of_type(value, type); });
      });
    }
    if (values.empty())
      return broken(path, "there is no value that its const, its enum and its type all take");
    std::vector<std::string> texts;
    for (const json::Value& value : values) texts.push_back(json::write(value));
    return texts;
  }

  Result<NodeId> alternatives(const json::Object& schema, const std::string& path, std::string_view key,
                              NodeId from, int depth) {
    // It says to readers by which property they tell the alternatives apart, and holds nothing.
    const Known known = key == "allOf" ? Known{key} : Known{key, "discriminator"};
    if (auto checked = check_keys(schema, path, known); !checked) return std::move(checked).error();
    const json::Array* choices = schema.find(key)->list();
    const std::size_t most = key == "allOf" ? 1 : schema_choices_max;
    if (choices == nullptr || choices->empty() || choices->size() > most)
      return broken(path, std::string(key) + " is a list of 1 to " + std::to_string(most) + " schemas");
    if (key == "oneOf") {
      if (auto checked = check_exclusion(*choices, path); !checked) return std::move(checked).error();
    }
    const NodeId end = grammar_.add();
    const auto begin = [&] {
      const NodeId node = grammar_.add();
      grammar_.skip(from, node);
      return node;
    };
    std::vector<std::string> texts;  // of all that are constant
    for (std::size_t nth = 0; nth < choices->size(); ++nth) {
      const json::Value& choice = (*choices)[nth];
      const std::string place = path + "/" + std::string(key) + "/" + std::to_string(nth);
      if (choice.object() != nullptr && is_constant(*choice.object())) {
        auto some = constants(*choice.object(), place);
        if (!some) return std::move(some).error();
        std::ranges::move(*some, std::back_inserter(texts));
        continue;
      }
      auto reached = value(choice, place, begin(), depth + 1);
      if (!reached) return reached;
      grammar_.skip(*reached, end);
    }
    if (!texts.empty()) grammar_.skip(add_words(grammar_, begin(), std::move(texts)), end);
    return end;
  }

  // That no value is taken by two of them is not looked for while a text is written: it has to be plain
  // before.
  Result<> check_exclusion(const json::Array& choices, const std::string& path) {
    const Resolve named = [this](std::string_view place) { return resolve(place); };
    std::vector<Takes> seen;
    for (const json::Value& choice : choices) seen.push_back(takes(choice, named, effort_));
    for (std::size_t one = 0; one < seen.size(); ++one) {
      for (std::size_t other = 0; other < one; ++other) {
        if (!effort_.spend(work_to_compare(seen[one], seen[other]))) return effort_.refusal();
        if (exclude_each_other(seen[one], seen[other])) continue;
        return broken(path, "of oneOf the alternatives " + std::to_string(other) + " and " +
                                std::to_string(one) +
                                " may both take the same value: neither their types nor the constants of a "
                                "property that both require differ")
            .remedy("write anyOf, which takes what any of them takes");
      }
    }
    return {};
  }

  // The types that it names; without a word about them what the other keys are about, if anything.
  Result<std::vector<std::string>> types_of(const json::Object& schema, const std::string& path) {
    std::vector<std::string> types;
    const json::Value* type = schema.find("type");
    if (type == nullptr) {
      for (const std::string_view key : {"properties", "required", "additionalProperties"}) {
        if (types.empty() && schema.find(key) != nullptr) types.emplace_back("object");
      }
      if (types.empty() && schema.find("items") != nullptr) types.emplace_back("array");
      return types;
    }
    if (type->text() != nullptr) {
      types.push_back(*type->text());
    } else if (const json::Array* several = type->list()) {
      for (const json::Value& one : *several) {
        if (one.text() == nullptr) return broken(path, "a type is a word");
        types.push_back(*one.text());
      }
    }
    if (types.empty() || types.size() > 7) return broken(path, "type is a word or a list of them");
    for (const std::string& one : types) {
      if (!keys_of(one)) return broken(path, "there is no type '" + one + "'");
    }
    return types;
  }

  Result<NodeId> typed(const json::Object& schema, const std::string& path, NodeId from, int depth) {
    const auto types = types_of(schema, path);
    if (!types) return types.error();
    // What is said of one kind of value is not looked for in the others.
    Known known{"type"};
    for (const std::string& one : *types) std::ranges::copy(*keys_of(one), std::back_inserter(known));
    if (auto checked = check_keys(schema, path, known); !checked) return std::move(checked).error();
    if (types->empty()) return parts_.value(from);
    if (types->size() == 1) return of_type(schema, path, types->front(), from, depth);
    const NodeId end = grammar_.add();
    for (const std::string& one : *types) {
      const NodeId begin = grammar_.add();
      grammar_.skip(from, begin);
      auto reached = of_type(schema, path, one, begin, depth);
      if (!reached) return reached;
      grammar_.skip(*reached, end);
    }
    return end;
  }

  // Its keys and its type are known to be known, here and below.
  Result<NodeId> of_type(const json::Object& schema, const std::string& path, const std::string& type,
                         NodeId from, int depth) {
    if (type == "object") return object_of(schema, path, from, depth);
    if (type == "array") return array_of(schema, path, from, depth);
    if (type == "string") return string_of(schema, path, from);
    if (type == "integer") return integer_of(schema, path, from);
    if (type == "number") return number_of(schema, path, from);
    if (type == "null") return grammar_.text(from, "null");
    const NodeId end = grammar_.add();
    grammar_.skip(grammar_.text(from, "true"), end);
    grammar_.skip(grammar_.text(from, "false"), end);
    return end;
  }

  // A bound as the nearest integer within it, `step` further where it is itself left out.
  Result<std::int64_t> bound(const json::Object& schema, const std::string& path, const std::string& key,
                             std::int64_t step, std::int64_t otherwise) {
    const json::Value* const value = schema.find(key);
    if (value == nullptr) return otherwise;
    const auto number = value->number();
    if (!number) return broken(path, key + " is a number");
    const bool is_exclusive = key.starts_with("exclusive");
    // One step beyond the largest that is ever written, where there may be no integer left.
    constexpr std::int64_t most = integer_max + 1;
    if (const auto whole = value->whole()) return std::clamp(*whole, -most, most) + (is_exclusive ? step : 0);
    if (std::abs(*number) >= static_cast<double>(most)) return *number < 0 ? -most : most;
    const double nearest = step > 0 ? std::ceil(*number) : std::floor(*number);
    return static_cast<std::int64_t>(nearest) + (is_exclusive && nearest == *number ? step : 0);
  }

  Result<NodeId> integer_of(const json::Object& schema, const std::string& path, NodeId from) {
    std::int64_t low = -integer_max;
    std::int64_t high = integer_max;
    for (const char* const key : {"minimum", "exclusiveMinimum"}) {
      const auto given = bound(schema, path, key, 1, low);
      if (!given) return given.error();
      low = std::max(low, *given);
    }
    for (const char* const key : {"maximum", "exclusiveMaximum"}) {
      const auto given = bound(schema, path, key, -1, high);
      if (!given) return given.error();
      high = std::min(high, *given);
    }
    if (low > high) return broken(path, "no integer of up to 18 digits lies within its bounds");
    if (low == -integer_max && high == integer_max) return parts_.integer(from);
    return parts_.integer_between(from, low, high);
  }

  Result<std::optional<Bound>> bound_of_numbers(const json::Object& schema, const std::string& path,
                                                Side side) {
    std::optional<Bound> tightest;
    const bool is_lower = side == Side::lower;
    for (const std::string key :
         {is_lower ? "minimum" : "maximum", is_lower ? "exclusiveMinimum" : "exclusiveMaximum"}) {
      const json::Value* const value = schema.find(key);
      if (value == nullptr) continue;
      auto bound = read_bound(*value, side, key.starts_with("exclusive"));
      if (!bound) return broken(path, key + " " + bound.error().message());
      tightest = tighter(std::move(tightest), std::move(*bound), side);
    }
    return tightest;
  }

  Result<NodeId> number_of(const json::Object& schema, const std::string& path, NodeId from) {
    const auto low = bound_of_numbers(schema, path, Side::lower);
    if (!low) return low.error();
    const auto high = bound_of_numbers(schema, path, Side::upper);
    if (!high) return high.error();
    if (!*low && !*high) return parts_.number(from);
    const auto end = add_number_between(grammar_, parts_, from, *low, *high);
    if (!end)
      return broken(path, "no number of up to 18 digits before and behind the point lies within its bounds");
    return *end;
  }

  Result<NodeId> string_of(const json::Object& schema, const std::string& path, NodeId from) {
    const bool is_counted = schema.find("minLength") != nullptr || schema.find("maxLength") != nullptr;
    if (const json::Value* pattern = schema.find("pattern")) {
      if (pattern->text() == nullptr) return broken(path, "a pattern is a text");
      if (is_counted) return broken(path, "a pattern together with a length is not known here");
      auto end = add_pattern(grammar_, grammar_.text(from, "\""), *pattern->text(),
                             {.in_json_string = true, .finds = true}, effort_);
      if (!end) return std::move(end).error().within("the schema at '#" + path + "'");
      return grammar_.text(*end, "\"");
    }
    if (!is_counted) return parts_.string(from);
    const auto least = count(schema, path, "minLength", 0, schema_length_max);
    if (!least) return least.error();
    const auto most = count(schema, path, "maxLength", -1, schema_length_max);
    if (!most) return most.error();
    if (*most >= 0 && *most < *least) return broken(path, "maxLength is less than minLength");
    NodeId node = grammar_.text(from, "\"");
    const NodeId end = grammar_.add();
    for (std::int64_t letter = 0; letter < std::max(*least, *most); ++letter) {
      if (letter >= *least) grammar_.skip(node, end);
      node = parts_.letter(node);
    }
    if (*most < 0) {
      const NodeId loop = grammar_.add();
      grammar_.skip(node, loop);
      grammar_.skip(parts_.letter(loop), loop);
      node = loop;
    }
    grammar_.skip(node, end);
    return grammar_.text(end, "\"");
  }

  Result<NodeId> array_of(const json::Object& schema, const std::string& path, NodeId from, int depth) {
    const auto least = count(schema, path, "minItems", 0, schema_items_max);
    if (!least) return least.error();
    const auto most = count(schema, path, "maxItems", -1, schema_items_max);
    if (!most) return most.error();
    if (*most >= 0 && *most < *least) return broken(path, "maxItems is less than minItems");
    const json::Value* items = schema.find("items");
    // Written once and called, however often it is counted.
    NodeId part = 0;
    if (items != nullptr) {
      part = grammar_.add();
      auto end = value(*items, path + "/items", part, depth + 1);
      if (!end) return end;
      grammar_.end_part(*end);
    }
    return parts_.list(from, *least, *most, [&](NodeId node) {
      if (items == nullptr) return parts_.value(node);
      const NodeId after = grammar_.add();
      grammar_.call(node, part, after, false);
      return after;
    });
  }

  Result<NodeId> object_of(const json::Object& schema, const std::string& path, NodeId from, int depth) {
    const json::Value* properties = schema.find("properties");
    if (properties != nullptr && properties->object() == nullptr)
      return broken(path, "properties are an object");
    std::set<std::string> required;
    if (const json::Value* list = schema.find("required")) {
      if (list->list() == nullptr) return broken(path, "required is a list of words");
      for (const json::Value& one : *list->list()) {
        if (one.text() == nullptr || properties == nullptr || properties->find(*one.text()) == nullptr)
          return broken(path, "what is required is one of the properties");
        required.insert(*one.text());
      }
    }
    if (properties == nullptr || properties->object()->size() == 0) {
      const json::Value* others = schema.find("additionalProperties");
      if (others == nullptr || others->boolean() == true) return parts_.object(from);
      if (others->boolean() == false) return grammar_.text(from, "{}");
      const NodeId part = grammar_.add();
      auto end = value(*others, path + "/additionalProperties", part, depth + 1);
      if (!end) return end;
      grammar_.end_part(*end);
      return parts_.members(from, [&](NodeId node) {
        const NodeId after = grammar_.add();
        grammar_.call(node, part, after, false);
        return after;
      });
    }
    if (properties->object()->size() > schema_properties_max)
      return broken(path, "more than " + std::to_string(schema_properties_max) + " properties");
    return properties_of(*properties, required, path + "/properties", from, depth);
  }

  // One after the other: those before which nothing stands yet, and those that follow a comma.
  Result<NodeId> properties_of(const json::Value& properties, const std::set<std::string>& required,
                               const std::string& path, NodeId from, int depth) {
    NodeId first = parts_.space(grammar_.text(from, "{"));
    NodeId later = grammar_.add();
    for (const std::string& key : order_.keys(path, *properties.object())) {
      const NodeId begin = grammar_.add();
      grammar_.skip(first, begin);
      grammar_.skip(parts_.space(grammar_.text(later, ",")), begin);
      const NodeId colon = grammar_.text(grammar_.text(begin, json::write(json::Value(key))), ":");
      auto end = value(*properties.find(key), path + "/" + escaped(key), parts_.space(colon), depth + 1);
      if (!end) return end;
      const NodeId next_first = grammar_.add();
      const NodeId next_later = grammar_.add();
      grammar_.skip(*end, next_later);
      if (!required.contains(key)) {
        grammar_.skip(first, next_first);
        grammar_.skip(later, next_later);
      }
      first = next_first;
      later = next_later;
    }
    const NodeId close = grammar_.add();
    grammar_.skip(first, close);
    grammar_.skip(parts_.space(later), close);
    return grammar_.text(close, "}");
  }

  Grammar& grammar_;
  JsonParts parts_;
  const json::Value& root_;
  const KeyOrder& order_;
  Effort& effort_;
  std::map<std::string, NodeId> references_;
  std::vector<Named> named_;  // in the order in which they were named
};

}  // namespace

Result<NodeId> add_schema(Grammar& grammar, NodeId from, std::string_view schema, Effort& effort) {
  if (schema.size() > schema_bytes_max)
    return invalid("the schema has more than " + std::to_string(schema_bytes_max) + " bytes");
  auto root = json::parse(schema);
  if (!root) return std::move(root).error().as(ErrorCode::invalid).within("the schema");
  const KeyOrder order(schema, schema_path_bytes_max);
  auto end = Compiler(grammar, *root, order, effort).root(from);
  if (end && grammar.full()) return invalid("the schema is too large");
  return end;
}

Result<NodeId> add_any_object(Grammar& grammar, NodeId from) { return JsonParts(grammar).object(from); }

}  // namespace tutti::serve
