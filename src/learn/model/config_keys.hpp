// The keys of a config.json as they are taken one by one; the first that is wrong is remembered, by its name.
// One thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/value.hpp"
#include "learn/model/rope.hpp"
#include "learn/model/shape.hpp"

namespace tutti::model {

class ConfigKeys {
 public:
  explicit ConfigKeys(const json::Object& config) : config_(config) {}

  bool has(const char* key) const { return config_.find(key) != nullptr; }
  std::int64_t required(const char* key);
  // Otherwise: missing or null.
  std::int64_t optional(const char* key, std::int64_t otherwise);
  double number(const char* key, double otherwise);
  bool toggle(const char* key, bool otherwise);
  std::vector<std::int64_t> layers(const char* key);
  Activation activation(const char* key, Activation otherwise);
  Rope rope();
  // What cannot be computed here must not be passed over in silence: missing, or of this value.
  void only(const char* key, const json::Value& value);
  // Missing, null, false, or nothing in it.
  void none(const char* key);
  // A list in which each layer has this word, or nothing.
  void each_layer(const char* key, std::string_view word);
  void tell(const char* key, const std::string& problem);

  const std::string& problem() const { return problem_; }

 private:
  bool lacks(const char* key) const;
  template <class T>
  T taken(const char* key, std::optional<T> value, const char* otherwise) {
    if (!value) tell(key, otherwise);
    return value.value_or(T{});
  }

  const json::Object& config_;
  std::string problem_;
};

// What config.json calls it; gpt2 has a word of its own for the usual one.
std::string_view word_of(Activation activation, std::string_view model_type);

}  // namespace tutti::model
