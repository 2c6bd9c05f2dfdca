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

Error refused(const std::string& key, const std::string& why) { return invalid("'" + key + "' " + why); }

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The keys of one description of a rope, which stands in the configuration under `name`.
class Description {
 public:
  Description(std::string name, const json::Object& keys) : name_(std::move(name)), keys_(keys) {}

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
      rope.original_context = static_cast<std::int64_t>(positive("original_max_position_embeddings"));
      if (problem_.empty() && !(rope.high_frequency_factor > rope.low_frequency_factor))
        tell("high_freq_factor", "must be above low_freq_factor");
      if (problem_.empty() && rope.original_context > original_context_max)
        tell("original_max_position_embeddings", "is too large");
    } else {
      return refused(
          name_, "is of the type " + json::write(*kind) + ", and only default, linear and llama3 are known");
    }
    if (keys_.find("rope_theta") != nullptr) rope.theta = positive("rope_theta");
    for (const auto& [key, value] : keys_) check(key, value, rope.kind);
    if (!problem_.empty()) return invalid(problem_);
    return {};
  }

 private:
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
    tell(key, "is " + json::write(value) + ", which is not known here");
  }

  void tell(const std::string& key, const std::string& problem) {
    if (problem_.empty()) problem_ = "'" + name_ + "." + key + "' " + problem;
  }

  std::string name_;
  const json::Object& keys_;
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
    if (auto done = Description(key, *found->object()).read(read); !done) return std::move(done).error();
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
  }
}

std::vector<double> frequencies(const Rope& rope, std::int64_t head_size) {
  std::vector<double> all;
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
    all.push_back(frequency);
  }
  return all;
}

}  // namespace tutti::model
