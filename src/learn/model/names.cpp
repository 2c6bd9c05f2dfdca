#include "learn/model/names.hpp"

namespace tutti::model {
namespace {

bool is_gpt2(const Shape& shape) { return shape.model_type == "gpt2"; }

std::string layer_prefix(const Shape& shape, std::int64_t layer) {
  return (is_gpt2(shape) ? "h." : "model.layers.") + std::to_string(layer) + ".";
}

FeedForwardNames feed_forward_names(const Shape& shape, const std::string& at) {
  if (is_gpt2(shape)) return {at + "c_gate", at + "c_fc", at + "c_proj"};
  return {at + "gate_proj", at + "up_proj", at + "down_proj"};
}

}  // namespace

Names names_of(const Shape& shape) {
  if (is_gpt2(shape)) return {"wte", "wpe", "ln_f", "lm_head"};
  return {"model.embed_tokens", "model.embed_positions", "model.norm", "lm_head"};
}

LayerNames names_of_layer(const Shape& shape, std::int64_t layer) {
  const std::string at = layer_prefix(shape, layer);
  const std::string attention = at + (is_gpt2(shape) ? "attn." : "self_attn.");
  LayerNames names;
  if (is_gpt2(shape)) {
    names = {.attention_norm = at + "ln_1",
             .queries = attention + "q",
             .keys = attention + "k",
             .values = attention + "v",
             .output = attention + "c_proj",
             .feed_forward_norm = at + "ln_2"};
  } else {
    names = {.attention_norm = at + "input_layernorm",
             .queries = attention + "q_proj",
             .keys = attention + "k_proj",
             .values = attention + "v_proj",
             .output = attention + "o_proj",
             .feed_forward_norm = at + "post_attention_layernorm"};
  }
  names.query_norm = attention + "q_norm";
  names.key_norm = attention + "k_norm";
  names.feed_forward = feed_forward_names(shape, at + "mlp.");
  names.router = at + "mlp.gate";
  return names;
}

FeedForwardNames names_of_expert(const Shape& shape, std::int64_t layer, std::int64_t expert) {
  return feed_forward_names(shape,
                            layer_prefix(shape, layer) + "mlp.experts." + std::to_string(expert) + ".");
}

std::string weight_of(const std::string& part) { return part + ".weight"; }
std::string bias_of(const std::string& part) { return part + ".bias"; }

}  // namespace tutti::model
