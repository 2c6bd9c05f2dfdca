#include "learn/gguf/architecture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/check.hpp"
#include "learn/model/names.hpp"

namespace tutti::gguf {
namespace {

using model::Shape;

// A family there, and what it computes whether a model asks for it or not.
struct Known {
  std::string_view model_type;  // as config.json has it
  std::string_view name;        // as llama.cpp has it
  bool pairs_neighbours = false;
  bool any_bias = false;      // attention and feed-forward parts may have them or not
  bool any_head_size = true;  // all heads together may be wider than the model, or narrower
};

constexpr std::array known{
    Known{.model_type = "gpt2", .name = "gpt2", .any_head_size = false},
    Known{.model_type = "llama", .name = "llama", .pairs_neighbours = true, .any_bias = true},
    Known{.model_type = "mistral", .name = "llama", .pairs_neighbours = true},
    Known{.model_type = "qwen2", .name = "qwen2", .any_head_size = false},
    Known{.model_type = "qwen3", .name = "qwen3"},
    Known{.model_type = "qwen3_moe", .name = "qwen3moe"},
};

Error not_there(const Known& family, const std::string& what) {
  return invalid("llama.cpp's architecture '" + std::string(family.name) + "' has no " + what)
      .remedy("export it with --format hf");
}

// llama.cpp reads how much slower each pair turns for one of its architectures alone, and of YaRN only the
// factors.
Result<> check_rope(const Known& family, const Shape& shape) {
  const model::Rope& rope = shape.rope;
  if (rope.kind == model::Rope::Kind::llama3 && family.name != "llama")
    return not_there(family, "rotary positions of the type llama3");
  if (rope.kind != model::Rope::Kind::yarn) return {};
  const model::Rope usual;
  const model::Ramp ramp = model::ramp_of(rope, shape.head_size);
  const bool known = rope.beta_fast == usual.beta_fast && rope.beta_slow == usual.beta_slow && rope.truncates;
  if (!known) return not_there(family, "YaRN but with a beta_fast of 32, a beta_slow of 1, and truncated");
  if (ramp.end < ramp.begin) return not_there(family, "YaRN from so short a context");
  return {};
}

// The first thing of the model that the architecture would leave out or do otherwise.
Result<> check_features(const Known& family, const Shape& shape) {
  auto usual = model::family_of(shape.model_type);
  if (!usual) return std::move(usual).error();
  if (shape.norm != usual->norm) return not_there(family, "such norm");
  if (shape.activation != usual->activation) return not_there(family, "such activation");
  if (shape.gated != usual->gated) return not_there(family, "such feed-forward part");
  if (shape.learned_positions != usual->learned_positions) return not_there(family, "such positions");
  if (shape.qk_norm != usual->qk_norm) return not_there(family, "such norm of queries and keys");
  const bool usual_bias = shape.qkv_bias == usual->qkv_bias && shape.output_bias == usual->output_bias &&
                          shape.mlp_bias == usual->mlp_bias;
  if (!usual_bias && !family.any_bias) return not_there(family, "such biases");
  if (shape.window > 0 && shape.window < shape.context)
    return not_there(family, "sliding window of " + std::to_string(shape.window) + " tokens");
  if (!shape.learned_positions) {
    if (auto fine = check_rope(family, shape); !fine) return fine;
  }
  if (!family.any_head_size && shape.head_size * shape.heads != shape.hidden)
    return not_there(family, "heads of " + std::to_string(shape.head_size) + " numbers each");
  if (family.name == "gpt2" && shape.kv_heads != shape.heads)
    return not_there(family, "keys that queries share");
  const bool mixture = shape.experts.count > 0;
  if (mixture != (family.name == "qwen3moe")) return not_there(family, mixture ? "experts" : "dense models");
  if (!mixture) return {};
  if (!shape.experts.normalized) return not_there(family, "weights of experts that do not add up to 1");
  if (shape.experts.every != 1 || !shape.experts.dense_layers.empty())
    return not_there(family, "layers without experts among those with them");
  return {};
}

class Plan {
 public:
  Plan(const Known& family, const Shape& shape) : family_(family), shape_(shape), all_(shapes()) {}

  std::vector<Planned> tensors() {
    const model::Names names = model::names_of(shape_);
    add("token_embd", names.embedding);
    if (shape_.learned_positions) {
      add("position_embd", names.positions);
      planned_.back().always_f32 = true;
    }
    add_stretching();
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) add_layer(layer);
    add("output_norm", names.norm);
    if (!shape_.tied) add("output", names.head);
    return std::move(planned_);
  }

 private:
  struct Ours {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  std::vector<Ours> shapes() const {
    std::vector<Ours> all;
    for (const model::Unit& unit : model::units(shape_)) {
      for (const model::Tensor& tensor : unit.tensors) all.push_back({tensor.name, tensor.shape});
    }
    std::ranges::sort(all, {}, &Ours::name);
    return all;
  }

  const std::vector<std::int64_t>* find(const std::string& name) const {
    const auto found = std::ranges::lower_bound(all_, name, {}, &Ours::name);
    return found != all_.end() && found->name == name ? &found->shape : nullptr;
  }

  // A part's weight and, where it has one, its bias. Several parts are one below the other.
  void add(const std::string& there, const std::vector<std::string>& parts, std::int64_t paired_rows = 0) {
    for (const char* kind : {".weight", ".bias"}) {
      Planned planned{
          .name = there + kind, .shape = {}, .parts = {}, .paired_rows = paired_rows, .numbers = {}};
      for (const std::string& part : parts) {
        const auto* shape = find(part + kind);
        if (shape == nullptr) continue;
        if (planned.parts.empty()) {
          planned.shape = *shape;
        } else {
          planned.shape[0] += (*shape)[0];
        }
        planned.parts.push_back(part + kind);
      }
      if (planned.parts.empty()) continue;
      planned.always_f32 = planned.shape.size() == 1;
      planned_.push_back(std::move(planned));
    }
  }
  void add(const std::string& there, const std::string& part, std::int64_t paired_rows = 0) {
    add(there, std::vector{part}, paired_rows);
  }

  // How much slower each pair turns than it would by the base alone.
  void add_stretching() {
    if (shape_.rope.kind != model::Rope::Kind::llama3) return;
    model::Rope plain = shape_.rope;
    plain.kind = model::Rope::Kind::plain;
    const auto fast = model::frequencies(plain, shape_.head_size);
    const auto slow = model::frequencies(shape_.rope, shape_.head_size);
    Planned planned{.name = "rope_freqs.weight",
                    .shape = {static_cast<std::int64_t>(fast.size())},
                    .parts = {},
                    .always_f32 = true,
                    .numbers = {}};
    for (std::size_t at = 0; at < fast.size(); ++at)
      planned.numbers.push_back(static_cast<float>(fast[at] / slow[at]));
    planned_.push_back(std::move(planned));
  }

  void add_layer(std::int64_t layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    const model::LayerNames names = model::names_of_layer(shape_, layer);
    const std::int64_t paired_rows = family_.pairs_neighbours ? shape_.head_size : 0;
    add(at + "attn_norm", names.attention_norm);
    if (family_.name == "gpt2") {
      add(at + "attn_qkv", {names.queries, names.keys, names.values});
    } else {
      add(at + "attn_q", names.queries, paired_rows);
      add(at + "attn_k", names.keys, paired_rows);
      add(at + "attn_v", names.values);
    }
    if (shape_.qk_norm) {
      add(at + "attn_q_norm", names.query_norm);
      add(at + "attn_k_norm", names.key_norm);
    }
    add(at + "attn_output", names.output);
    add(at + "ffn_norm", names.feed_forward_norm);
    if (shape_.has_experts(layer)) return add_experts(at, layer, names);
    if (shape_.gated) add(at + "ffn_gate", names.feed_forward.gate);
    add(at + "ffn_up", names.feed_forward.up);
    add(at + "ffn_down", names.feed_forward.down);
  }

  // All experts of a layer are one tensor of three dimensions.
  void add_experts(const std::string& at, std::int64_t layer, const model::LayerNames& names) {
    add(at + "ffn_gate_inp", names.router);
    planned_.back().always_f32 = true;
    std::vector<std::string> gates, ups, downs;
    for (std::int64_t expert = 0; expert < shape_.experts.count; ++expert) {
      const auto parts = model::names_of_expert(shape_, layer, expert);
      gates.push_back(parts.gate);
      ups.push_back(parts.up);
      downs.push_back(parts.down);
    }
    for (const auto& [there, parts] : {std::pair("ffn_gate_exps", &gates), std::pair("ffn_up_exps", &ups),
                                       std::pair("ffn_down_exps", &downs)}) {
      add(at + there, *parts);
      auto& shape = planned_.back().shape;
      shape = {shape_.experts.count, shape[0] / shape_.experts.count, shape[1]};
    }
  }

  const Known& family_;
  const Shape& shape_;
  std::vector<Ours> all_;
  std::vector<Planned> planned_;
};

Fields fields_of(const Known& family, const Shape& shape) {
  Fields fields;
  const std::string at = std::string(family.name) + ".";
  const auto number = [&](const char* name, std::int64_t value) {
    fields.add(at + name, static_cast<std::uint32_t>(value));
  };
  fields.add("general.architecture", family.name);
  number("vocab_size", shape.vocabulary);
  number("context_length", shape.context);
  number("embedding_length", shape.hidden);
  number("block_count", shape.layers);
  number("feed_forward_length", shape.intermediate);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  const char* epsilon =
      shape.norm == model::Norm::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  fields.add(at + epsilon, static_cast<float>(shape.norm_epsilon));
  if (shape.learned_positions) return fields;
  number("attention.key_length", shape.head_size);
  number("attention.value_length", shape.head_size);
  number("rope.dimension_count", shape.head_size);
  fields.add(at + "rope.freq_base", static_cast<float>(shape.rope.theta));
  if (shape.rope.kind == model::Rope::Kind::linear) {
    fields.add(at + "rope.scaling.type", std::string_view("linear"));
    fields.add(at + "rope.scaling.factor", static_cast<float>(shape.rope.factor));
  }
  if (shape.rope.kind == model::Rope::Kind::yarn) {
    fields.add(at + "rope.scaling.type", std::string_view("yarn"));
    fields.add(at + "rope.scaling.factor", static_cast<float>(shape.rope.factor));
    number("rope.scaling.original_context_length", shape.rope.original_context);
    // On top of what follows from the factor, which is computed there.
    const double usual = 0.1 * std::log(shape.rope.factor) + 1;
    fields.add(at + "rope.scaling.attn_factor", static_cast<float>(shape.rope.attention_factor / usual));
  }
  if (shape.experts.count == 0) return fields;
  number("expert_count", shape.experts.count);
  number("expert_used_count", shape.experts.chosen);
  number("expert_feed_forward_length", shape.experts.intermediate);
  return fields;
}

}  // namespace

Result<Architecture> architecture_of(const Shape& shape) {
  const auto* family = std::ranges::find(known, shape.model_type, &Known::model_type);
  if (family == known.end()) {
    return invalid("a model of type '" + shape.model_type + "' has no form that llama.cpp knows")
        .remedy("export it with --format hf");
  }
  if (auto fine = check_features(*family, shape); !fine) return std::move(fine).error();
  return Architecture{std::string(family->name), fields_of(*family, shape), Plan(*family, shape).tensors()};
}

}  // namespace tutti::gguf
