#include "learn/model/config_keys.hpp"

#include <algorithm>
#include <array>

#include "base/json/write.hpp"

namespace tutti::model {
namespace {

struct ActivationWord {
  std::string_view word;
  Activation activation;
};
// Several words mean the same; the first of each is the one that is written.
constexpr std::array activation_words{ActivationWord{"gelu", Activation::gelu},
                                      ActivationWord{"gelu_python", Activation::gelu},
                                      ActivationWord{"gelu_pytorch_tanh", Activation::gelu_tanh},
                                      ActivationWord{"gelu_new", Activation::gelu_tanh},
                                      ActivationWord{"gelu_fast", Activation::gelu_tanh},
                                      ActivationWord{"silu", Activation::silu},
                                      ActivationWord{"swish", Activation::silu}};

constexpr std::size_t value_chars_max = 100;  // of a value that is shown

std::string shown(const json::Value& value) {
  std::string text = json::write(value);
  if (text.size() > value_chars_max) text = text.substr(0, value_chars_max) + "…";
  return text;
}

}  // namespace

std::int64_t ConfigKeys::required(const char* key) {
  const json::Value* const found = config_.find(key);
  return taken(key, found == nullptr ? std::nullopt : found->whole(), "is missing or no whole number");
}

std::int64_t ConfigKeys::optional(const char* key, std::int64_t otherwise) {
  return lacks(key) ? otherwise : required(key);
}

double ConfigKeys::number(const char* key, double otherwise) {
  return lacks(key) ? otherwise : taken(key, config_.find(key)->number(), "is no number");
}

bool ConfigKeys::toggle(const char* key, bool otherwise) {
  return lacks(key) ? otherwise : taken(key, config_.find(key)->boolean(), "is neither true nor false");
}

std::vector<std::int64_t> ConfigKeys::layers(const char* key) {
  if (lacks(key)) return {};
  const json::Array* const list = config_.find(key)->list();
  std::vector<std::int64_t> all;
  for (const json::Value& value : list == nullptr ? json::Array{nullptr} : *list)
    all.push_back(taken(key, value.whole(), "is no list of layers"));
  return all;
}

Activation ConfigKeys::activation(const char* key, Activation otherwise) {
  if (lacks(key)) return otherwise;
  const json::Value& value = *config_.find(key);
  if (value.text() != nullptr) {
    const auto found = std::ranges::find(activation_words, *value.text(), &ActivationWord::word);
    if (found != activation_words.end()) return found->activation;
  }
  tell(key, "is " + shown(value) + ", and only silu, gelu, gelu_new and gelu_pytorch_tanh are known");
  return otherwise;
}

Rope ConfigKeys::rope() {
  auto parsed = parse_rope(config_);
  if (parsed) return *parsed;
  if (problem_.empty()) problem_ = parsed.error().message();
  return {};
}

void ConfigKeys::only(const char* key, const json::Value& value) {
  const json::Value* const found = config_.find(key);
  if (found == nullptr || *found == value) return;
  tell(key, "is " + shown(*found) + ", and only " + json::write(value) + " is known");
}

void ConfigKeys::none(const char* key) {
  if (lacks(key)) return;
  const json::Value& value = *config_.find(key);
  const bool empty = value.boolean() == false || (value.list() != nullptr && value.list()->empty()) ||
                     (value.object() != nullptr && value.object()->size() == 0);
  if (!empty) tell(key, "is " + shown(value) + ", which is not known here");
}

void ConfigKeys::each_layer(const char* key, std::string_view word) {
  if (lacks(key)) return;
  const json::Value& value = *config_.find(key);
  const bool same =
      value.list() != nullptr && std::ranges::all_of(*value.list(), [&](const json::Value& one) {
        return one.text() != nullptr && *one.text() == word;
      });
  if (!same)
    tell(key, "is " + shown(value) + ", and only '" + std::string(word) + "' for each layer is known");
}

void ConfigKeys::tell(const char* key, const std::string& problem) {
  if (problem_.empty()) problem_ = "'" + std::string(key) + "' " + problem;
}

bool ConfigKeys::lacks(const char* key) const {
  const json::Value* const found = config_.find(key);
  return found == nullptr || found->is_null();
}

std::string_view word_of(Activation activation, std::string_view model_type) {
  if (activation == Activation::gelu_tanh && model_type == "gpt2") return "gelu_new";
  return std::ranges::find(activation_words, activation, &ActivationWord::activation)->word;
}

}  // namespace tutti::model
