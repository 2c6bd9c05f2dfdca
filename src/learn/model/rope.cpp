#include "learn/model/rope.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>

#include "base/json/value.hpp"
#include "base/json/write.hpp"

namespace tutti::model {
namespace {

constexpr std::int64_t original_context_max = std::int64_t{1} << 24;
constexpr double attention_factor_max = 1024;

Error refused(const std::string& key, const std::string& why) { return invalid("'" + key + "' " + why); }

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Missing or null: nothing is said.
const json::Value* find_said(const json::Object& keys, const char* key) {
  const json::Value* const found = keys.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

// How much larger attention's weights become where positions are stretched, as YaRN's authors found it.
double sharpening(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

// The keys of one description of a rope, which stands in the configuration under `name`.
class Description {
 public:
  Description(std::string name, const json::Object& keys, const json::Object& config)
      : name_(std::move(name)), keys_(keys), config_(config) {}

  Result<> read(Rope& rope) {
    const json::Value* kind = keys_.find("rope_type");
    if (kind == nullptr) kind = keys_.find("type");  // as older files have it
    if (kind == nullptr || kind->text() == nullptr) return refused(name_, "has no rope_type");
    if (*kind->text() == "default") {
      rope.kind = Rope::Kind::plain;
    } else if (*kind->text() == "linear") {
      rope.kind = Rope::Kind::linear;
      rope.factor = positive("factor");
    } else if (*kind->text() == "llama3") {
      rope.kind = Rope::Kind::llama3;
      rope.factor = positive("factor");
      rope.low_frequency_factor = positive("low_freq_factor");
      rope.high_frequency_factor = positive("high_freq_factor");
      rope.original_context = original_context();
      if (problem_.empty() && !(rope.high_frequency_factor > rope.low_frequency_factor))
        tell("high_freq_factor", "must be above low_freq_factor");
    } else if (*kind->text() == "yarn") {
      rope.kind = Rope::Kind::yarn;
      read_yarn(rope);
    } else {
      return refused(name_, "is of the type " + json::write(*kind) +
                                ", and only default, linear, llama3 and yarn are known");
    }
    if (keys_.find("rope_theta") != nullptr) rope.theta = positive("rope_theta");
    if (rope.kind == Rope::Kind::yarn && !(rope.theta > 1)) tell("rope_theta", "must be above 1 for yarn");
    for (const auto& [key, value] : keys_) check(key, value, rope.kind);
    if (!problem_.empty()) return invalid(problem_);
    return {};
  }

 private:
  void read_yarn(Rope& rope) {
    rope.factor = positive("factor");
    if (rope.factor < 1) tell("factor", "must be at least 1");
    rope.original_context = original_context();
    if (said("beta_fast")) rope.beta_fast = positive("beta_fast");
    if (said("beta_slow")) rope.beta_slow = positive("beta_slow");
    if (rope.beta_fast < rope.beta_slow) tell("beta_fast", "must be at least beta_slow");
    if (const json::Value* const truncate = keys_.find("truncate"); truncate != nullptr) {
      if (!truncate->boolean()) tell("truncate", "is neither true nor false");
      rope.truncates = truncate->boolean().value_or(true);
    }
    rope.attention_factor = attention_factor(rope.factor);
  }

  // Said, or from the factor; models that are scaled twice say both scales, and none is as one that is 0.
  double attention_factor(double factor) {
    const double scale = said("mscale") ? not_negative("mscale") : 0;
    const double inner_scale = said("mscale_all_dim") ? not_negative("mscale_all_dim") : 0;
    double found = sharpening(factor, 1);
    if (scale > 0 && inner_scale > 0) found = sharpening(factor, scale) / sharpening(factor, inner_scale);
    if (said("attention_factor")) found = positive("attention_factor");
    if (found > 0 && found <= attention_factor_max) return found;
    tell(said("attention_factor") ? "attention_factor" : "mscale",
         "multiplies queries and keys by nothing, or by more than 1,024");
    return 1;
  }

  // Some models say it beside the description, and those that do not say it mean the context that they have.
  std::int64_t original_context() {
    constexpr const char* key = "original_max_position_embeddings";
    const json::Value* const inside = find_said(keys_, key);
    const json::Value* const beside = find_said(config_, key);
    if (inside != nullptr && beside != nullptr && inside->number() != beside->number())
      tell(key, "is another one than the model's own");
    const json::Value* found = inside != nullptr ? inside : beside;
    if (found == nullptr) found = find_said(config_, "max_position_embeddings");
    const auto number = found == nullptr ? std::nullopt : found->number();
    if (!number || !(*number > 0) || std::floor(*number) != *number) {
      tell(key, "is missing or no positive whole number");
      return 1;
    }
    if (*number > static_cast<double>(original_context_max)) {
      tell(key, "is too large");
      return 1;
    }
    return static_cast<std::int64_t>(*number);
  }

  bool said(const char* key) const { return find_said(keys_, key) != nullptr; }

  double not_negative(const char* key) {
    const auto number = keys_.find(key)->number();
    if (!number || !(*number >= 0) || !std::isfinite(*number)) tell(key, "is no number from 0 on");
    return number.value_or(0);
  }

  double positive(const char* key) {
    const json::Value* const found = keys_.find(key);
    const auto number = found == nullptr ? std::nullopt : found->number();
    if (!number || !(*number > 0) || !std::isfinite(*number)) tell(key, "is missing or no positive number");
    return number.value_or(1);
  }

  // A key that means nothing to this type is refused as well: somebody meant something by it.
  void check(const std::string& key, const json::Value& value, Rope::Kind kind) {
    if (value.is_null() || is_one_of(key, {"rope_type", "type", "rope_theta"})) return;
    if (key == "partial_rotary_factor" && value.number() == 1.0) return;
    if (kind != Rope::Kind::plain && key == "factor") return;
    if (kind == Rope::Kind::llama3 &&
        is_one_of(key, {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}))
      return;
    if (kind == Rope::Kind::yarn &&
        is_one_of(key, {"original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
                        "mscale", "mscale_all_dim", "truncate"}))
      return;
    tell(key, "is " + json::write(value) + ", which is not known here");
  }

  void tell(const std::string& key, const std::string& problem) {
    if (problem_.empty()) problem_ = "'" + name_ + "." + key + "' " + problem;
  }

  std::string name_;
  const json::Object& keys_;
  const json::Object& config_;  // around it
  std::string problem_;
};

}  // namespace

Result<Rope> parse_rope(const json::Object& config) {
  Rope rope;
  for (const auto& [key, value] : config) {
    const bool concerns = key.find("rope") != std::string::npos || key.find("rotary") != std::string::npos;
    if (!concerns || value.is_null()) continue;
    if (is_one_of(key, {"rope_theta", "rope_scaling", "rope_parameters"})) continue;
    if (key == "partial_rotary_factor" && value.number() == 1.0) continue;
    if (value.boolean() == false) continue;
    return refused(key, "is " + json::write(value) + ", which is not known here");
  }
  if (const json::Value* const theta = config.find("rope_theta"); theta != nullptr && !theta->is_null()) {
    if (!theta->number()) return refused("rope_theta", "is no number");
    rope.theta = *theta->number();
  }
  bool described = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json::Value* const found = config.find(key);
    if (found == nullptr || found->is_null()) continue;
    if (found->object() == nullptr) return refused(key, "is no object");
    Rope read = rope;
    if (auto done = Description(key, *found->object(), config).read(read); !done)
      return std::move(done).error();
    if (described && read != rope) return refused(key, "says something else than rope_scaling");
    rope = read;
    described = true;
  }
  return rope;
}

void write_rope(const Rope& rope, json::Object& config) {
  config["rope_theta"] = rope.theta;
  switch (rope.kind) {
    case Rope::Kind::plain:
      return;
    case Rope::Kind::linear:
      config["rope_scaling"] = json::Object{{"rope_type", "linear"}, {"factor", rope.factor}};
      return;
    case Rope::Kind::llama3:
      config["rope_scaling"] = json::Object{{"rope_type", "llama3"},
                                            {"factor", rope.factor},
                                            {"low_freq_factor", rope.low_frequency_factor},
                                            {"high_freq_factor", rope.high_frequency_factor},
                                            {"original_max_position_embeddings", rope.original_context}};
      return;
    case Rope::Kind::yarn:
      config["rope_scaling"] = json::Object{{"rope_type", "yarn"},
                                            {"factor", rope.factor},
                                            {"original_max_position_embeddings", rope.original_context},
                                            {"beta_fast", rope.beta_fast},
                                            {"beta_slow", rope.beta_slow},
                                            {"truncate", rope.truncates},
                                            {"attention_factor", rope.attention_factor}};
      return;
  }
}

Ramp ramp_of(const Rope& rope, std::int64_t head_size) {
  const auto size = static_cast<double>(head_size);
  // The pair that turns so often within the original context.
  const auto pair_of = [&](double turns) {
    const double positions = static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi);
    return size * std::log(positions) / (2 * std::log(rope.theta));
  };
  Ramp ramp{pair_of(rope.beta_fast), pair_of(rope.beta_slow)};
  if (rope.truncates) ramp = {std::floor(ramp.begin), std::ceil(ramp.end)};
  ramp = {std::max(ramp.begin, 0.0), std::min(ramp.end, size - 1)};
  constexpr double least = 0.001;  // so that the reference divides by something
  if (ramp.begin == ramp.end) ramp.end += least;
  return ramp;
}

std::vector<double> frequencies(const Rope& rope, std::int64_t head_size) {
  std::vector<double> all;
  const Ramp ramp = rope.kind == Rope::Kind::yarn ? ramp_of(rope, head_size) : Ramp{};
  const auto context = static_cast<double>(rope.original_context);
  for (std::int64_t i = 0; i < head_size / 2; ++i) {
    const double plain = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
    double frequency = plain;
    if (rope.kind == Rope::Kind::linear) frequency = plain / rope.factor;
    if (rope.kind == Rope::Kind::llama3) {
      // How often it turns within the original context: seldom is stretched, often is not, between is mixed.
      const double turns = context * plain / (2 * std::numbers::pi);
      const double kept = std::clamp(
          (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor), 0.0,
          1.0);
      frequency = (1 - kept) * plain / rope.factor + kept * plain;
    }
    if (rope.kind == Rope::Kind::yarn) {
      const double stretched =
          std::clamp((static_cast<double>(i) - ramp.begin) / (ramp.end - ramp.begin), 0.0, 1.0);
      frequency = stretched * plain / rope.factor + (1 - stretched) * plain;
    }
    all.push_back(frequency);
  }
  return all;
}

}  // namespace tutti::model
