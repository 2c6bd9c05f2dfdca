// The fields of a request's JSON object, each with its bounds. The first mistake is kept and names its field;
// what comes after it changes nothing. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/value.hpp"
#include "base/result.hpp"

namespace tutti::serve::api {

// Some languages have one kind of number and write 4 as 4.0.
std::optional<std::int64_t> whole_of(const json::Value& value);

class Fields {
 public:
  explicit Fields(const json::Value& object) : object_(object) {}

  // Null if the field is not there, or null there: both mean that nothing was asked for.
  const json::Value* find(std::string_view name) const;

  // Each sets its target if the field is there.
  void number(std::string_view name, float& target, double low, double high);
  void whole(std::string_view name, std::int32_t& target, std::int64_t low, std::int64_t high);
  void whole(std::string_view name, std::int64_t& target, std::int64_t low, std::int64_t high);
  void whole(std::string_view name, std::optional<std::int32_t>& target, std::int64_t low, std::int64_t high);
  void toggle(std::string_view name, bool& target);
  void text(std::string_view name, std::string& target, std::size_t bytes_max);

  // A field that would change the answer and is not done here: only these values are taken.
  void only(std::string_view name, std::initializer_list<json::Value> values, std::string_view why);

  void fail(std::string_view name, std::string why);
  bool fine() const { return !problem_; }
  // invalid, within the name of the field.
  const std::optional<Error>& problem() const { return problem_; }

 private:
  std::optional<std::int64_t> whole_between(std::string_view name, std::int64_t low, std::int64_t high);

  const json::Value& object_;
  std::optional<Error> problem_;
};

}  // namespace tutti::serve::api
