#include "serve/lora/adapter_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json/parse.hpp"

namespace tutti::serve::lora {
namespace {

constexpr double alpha_min = 1e-6;
constexpr double alpha_max = 1e6;
constexpr std::size_t targets_max = 4096;

// How the training went, where it lay, what it was for: none of it changes what is computed now. The modules
// and layers that were left out have no tensors.
constexpr std::array passed_over{"auto_mapping",        "base_model_name_or_path",
                                 "corda_config",        "eva_config",
                                 "exclude_modules",     "fan_in_fan_out",
                                 "inference_mode",      "layers_pattern",
                                 "layers_to_transform", "loftq_config",
                                 "lora_dropout",        "megatron_config",
                                 "megatron_core",       "peft_version",
                                 "qalora_group_size",   "revision",
                                 "runtime_config",      "task_type",
                                 "lora_ga_config",      "ensure_weight_tying"};

Error wrong(const std::string& key, const std::string& why) {
  return invalid("'" + key.substr(0, 64) + "' " + why);
}

// What a switch says that is off.
bool says_nothing(const json::Value& value) {
  return value.is_null() || value.boolean() == false || value.number() == 0.0 ||
         (value.text() != nullptr && value.text()->empty()) ||
         (value.list() != nullptr && value.list()->empty()) ||
         (value.object() != nullptr && value.object()->size() == 0);
}

Result<std::vector<std::string>> targets_of(const json::Value& value) {
  // A pattern, or "all-linear": what it matched is what the file has.
  if (value.text() != nullptr && !value.text()->empty()) return std::vector<std::string>();
  std::vector<std::string> targets;
  const json::Array* const list = value.list();
  if (list == nullptr || list->empty() || list->size() > targets_max)
    return wrong("target_modules", "must be the names of modules");
  for (const json::Value& each : *list) {
    if (each.text() == nullptr || each.text()->empty())
      return wrong("target_modules", "must be the names of modules");
    targets.push_back(*each.text());
  }
  return targets;
}

// Ways to begin that leave the model's own weights as they are; others take from them what the adapter holds.
Result<> check_beginning(const json::Value& value) {
  const std::string* const way = value.text();
  if (way == nullptr || *way == "gaussian" || *way == "eva" || *way == "orthogonal") return {};
  return wrong("init_lora_weights",
               "is " + way->substr(0, 64) + ": such an adapter belongs to weights that were changed with it");
}

}  // namespace

Result<AdapterConfig> parse_adapter_config(std::string_view text) {
  const auto root = json::parse(text);
  if (!root) return Error(root.error()).as(ErrorCode::invalid);
  if (root->object() == nullptr) return invalid("it must be a JSON object");
  AdapterConfig config;
  double alpha = 0;
  bool by_root = false;
  bool is_lora = false;
  for (const auto& [key, value] : *root->object()) {
    if (key == "peft_type") {
      is_lora = value == "LORA";
      if (!is_lora) return wrong(key, "must be LORA: no other kind of adapter is computed");
    } else if (key == "r") {
      const auto rank = value.whole();
      if (!rank || *rank < 1 || *rank > rank_max)
        return wrong(key, "must be a whole number from 1 to " + std::to_string(rank_max));
      config.rank = *rank;
    } else if (key == "lora_alpha") {
      const auto number = value.number();
      if (!number || !(*number >= alpha_min && *number <= alpha_max))
        return wrong(key, "must be a number above 0, and at most a million");
      alpha = *number;
    } else if (key == "use_rslora") {
      if (!value.is_null() && !value.boolean()) return wrong(key, "must be true or false");
      by_root = value.boolean().value_or(false);
    } else if (key == "target_modules") {
      auto targets = targets_of(value);
      if (!targets) return std::move(targets).error();
      config.targets = std::move(*targets);
    } else if (key == "init_lora_weights") {
      if (auto fine = check_beginning(value); !fine) return std::move(fine).error();
    } else if (key == "bias") {
      if (value != "none") return wrong(key, "must be none: biases of adapters are not computed");
    } else if (!says_nothing(value) && std::ranges::find(passed_over, key) == passed_over.end()) {
      return wrong(key, "asks for something that is not computed");
    }
  }
  if (!is_lora) return wrong("peft_type", "is missing");
  if (config.rank == 0) return wrong("r", "is missing");
  if (alpha == 0) return wrong("lora_alpha", "is missing");
  const auto rank = static_cast<double>(config.rank);
  config.scale = alpha / (by_root ? std::sqrt(rank) : rank);
  return config;
}

}  // namespace tutti::serve::lora
