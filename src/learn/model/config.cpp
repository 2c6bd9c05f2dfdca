#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "learn/model/config_keys.hpp"
#include "learn/model/shape.hpp"

namespace tutti::model {
namespace {

// What a family's config.json means by what it does not say, beside its features; as transformers has it.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  std::int64_t kv_heads = 0;    // 0: as many as heads
  std::int64_t head_size = 0;   // 0: hidden / heads
  bool attention_bias = false;  // the key is known
  bool mlp_bias = false;        // likewise
  enum class Window { none, size, toggled, off };
  Window window = Window::none;
};

constexpr std::array families{
    Family{.model_type = "gpt2", .architecture = "GPT2LMHeadModel"},
    Family{
        .model_type = "llama", .architecture = "LlamaForCausalLM", .attention_bias = true, .mlp_bias = true},
    Family{.model_type = "mistral",
           .architecture = "MistralForCausalLM",
           .kv_heads = 8,
           .window = Family::Window::size},
    Family{.model_type = "qwen2",
           .architecture = "Qwen2ForCausalLM",
           .kv_heads = 32,
           .window = Family::Window::toggled},
    Family{.model_type = "qwen3",
           .architecture = "Qwen3ForCausalLM",
           .kv_heads = 32,
           .head_size = 128,
           .attention_bias = true,
           .window = Family::Window::toggled},
    Family{.model_type = "qwen3_moe",
           .architecture = "Qwen3MoeForCausalLM",
           .kv_heads = 4,
           .attention_bias = true,
           .window = Family::Window::off},
};

constexpr std::int64_t window_otherwise = 4096;
constexpr std::int64_t window_layers_otherwise = 28;

const Family* find_family(std::string_view model_type) {
  const auto found = std::ranges::find(families, model_type, &Family::model_type);
  return found == families.end() ? nullptr : &*found;
}

// Keys of other families and of changed copies, with which the tensors mean something else.
constexpr std::array foreign_keys{
    "quantization_config", "attn_logit_softcapping", "final_logit_softcapping",
    "logit_scale",         "logits_scaling",         "embedding_multiplier",
    "residual_multiplier", "attention_multiplier",   "no_rope_layers",
    "is_encoder_decoder",  "add_cross_attention",    "use_bidirectional_attention"};

void read_gpt2(ConfigKeys& keys, Shape& shape) {
  shape.vocabulary = keys.required("vocab_size");
  shape.layers = keys.required("n_layer");
  shape.hidden = keys.required("n_embd");
  shape.heads = shape.kv_heads = keys.required("n_head");
  shape.head_size = shape.heads > 0 ? shape.hidden / shape.heads : 0;
  shape.intermediate = keys.optional("n_inner", 4 * std::clamp<std::int64_t>(shape.hidden, 0, 1 << 24));
  shape.context = keys.required("n_positions");
  shape.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  shape.activation = keys.activation("activation_function", Activation::gelu_tanh);
  shape.tied = keys.toggle("tie_word_embeddings", true);
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("reorder_and_upcast_attn", false);
}

std::int64_t read_window(ConfigKeys& keys, Family::Window kind, std::int64_t layers) {
  switch (kind) {
    case Family::Window::none:
      return 0;
    case Family::Window::size:
      return keys.has("sliding_window") ? keys.optional("sliding_window", 0) : window_otherwise;
    case Family::Window::off:
      keys.only("use_sliding_window", false);
      return 0;
    case Family::Window::toggled: {
      const std::int64_t first = keys.optional("max_window_layers", window_layers_otherwise);
      if (!keys.toggle("use_sliding_window", false) || first >= layers) return 0;
      if (first > 0) {
        keys.tell("max_window_layers", "is " + std::to_string(first) + " of " + std::to_string(layers) +
                                           " layers, and a window in some of the layers is not known");
      }
      return keys.has("sliding_window") ? keys.optional("sliding_window", 0) : window_otherwise;
    }
  }
  return 0;
}

Experts read_experts(ConfigKeys& keys) {
  // The newer name of the same.
  const std::int64_t count = keys.optional("num_local_experts", 128);
  return {.count = keys.optional("num_experts", count),
          .chosen = keys.optional("num_experts_per_tok", 8),
          .intermediate = keys.optional("moe_intermediate_size", 768),
          .normalized = keys.toggle("norm_topk_prob", false),
          .every = keys.optional("decoder_sparse_step", 1),
          .dense_layers = keys.layers("mlp_only_layers")};
}

void read_decoder(ConfigKeys& keys, const Family& family, Shape& shape) {
  shape.vocabulary = keys.required("vocab_size");
  shape.layers = keys.required("num_hidden_layers");
  shape.hidden = keys.required("hidden_size");
  shape.heads = keys.required("num_attention_heads");
  const bool own = family.kv_heads > 0 && !keys.has("num_key_value_heads");
  shape.kv_heads = own ? family.kv_heads : keys.optional("num_key_value_heads", shape.heads);
  const bool divided = family.head_size == 0 || keys.has("head_dim");
  std::int64_t head_size = family.head_size;
  if (divided) head_size = shape.heads > 0 ? shape.hidden / shape.heads : 0;
  shape.head_size = keys.optional("head_dim", head_size);
  if (shape.heads > 0 && shape.head_size == head_size && divided && shape.hidden % shape.heads != 0)
    keys.tell("num_attention_heads", "does not divide hidden_size, and head_dim says nothing else");
  shape.intermediate = keys.required("intermediate_size");
  shape.context = keys.required("max_position_embeddings");
  shape.norm_epsilon = keys.number("rms_norm_eps", 1e-6);
  shape.activation = keys.activation("hidden_act", Activation::silu);
  shape.rope = keys.rope();
  if (family.attention_bias) {
    shape.qkv_bias = shape.output_bias = keys.toggle("attention_bias", false);
  } else if (!shape.qkv_bias) {
    keys.only("attention_bias", false);
  }
  if (family.mlp_bias) {
    shape.mlp_bias = keys.toggle("mlp_bias", false);
  } else {
    keys.only("mlp_bias", false);
  }
  shape.window = read_window(keys, family.window, shape.layers);
  keys.each_layer("layer_types", shape.window > 0 ? "sliding_attention" : "full_attention");
  if (family.model_type == "qwen3_moe") shape.experts = read_experts(keys);
  shape.tied = keys.toggle("tie_word_embeddings", false);
}

void write_gpt2(const Shape& shape, json::Object& config) {
  config["vocab_size"] = shape.vocabulary;
  config["n_layer"] = shape.layers;
  config["n_embd"] = shape.hidden;
  config["n_head"] = shape.heads;
  config["n_inner"] = shape.intermediate;
  config["n_positions"] = shape.context;
  config["layer_norm_epsilon"] = shape.norm_epsilon;
  config["activation_function"] = word_of(shape.activation, shape.model_type);
}

void write_window(const Shape& shape, Family::Window kind, json::Object& config) {
  if (kind == Family::Window::none) return;
  if (kind != Family::Window::size) config["use_sliding_window"] = shape.window > 0;
  if (kind == Family::Window::toggled && shape.window > 0) config["max_window_layers"] = 0;
  config["sliding_window"] = shape.window > 0 ? json::Value(shape.window) : json::Value();
}

void write_decoder(const Shape& shape, const Family& family, json::Object& config) {
  config["vocab_size"] = shape.vocabulary;
  config["num_hidden_layers"] = shape.layers;
  config["hidden_size"] = shape.hidden;
  config["num_attention_heads"] = shape.heads;
  config["num_key_value_heads"] = shape.kv_heads;
  config["head_dim"] = shape.head_size;
  config["intermediate_size"] = shape.intermediate;
  config["max_position_embeddings"] = shape.context;
  config["rms_norm_eps"] = shape.norm_epsilon;
  config["hidden_act"] = word_of(shape.activation, shape.model_type);
  if (family.attention_bias) config["attention_bias"] = shape.qkv_bias;
  if (family.mlp_bias) config["mlp_bias"] = shape.mlp_bias;
  write_rope(shape.rope, config);
  write_window(shape, family.window, config);
  if (family.model_type == "qwen3_moe") {
    config["num_experts"] = shape.experts.count;
    config["num_experts_per_tok"] = shape.experts.chosen;
    config["moe_intermediate_size"] = shape.experts.intermediate;
    config["norm_topk_prob"] = shape.experts.normalized;
    config["decoder_sparse_step"] = shape.experts.every;
    config["mlp_only_layers"] = json::array_of(shape.experts.dense_layers);
  }
}

}  // namespace

const std::vector<std::string_view>& model_types() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> types;
    types.reserve(std::size(families));
    for (const Family& family : families) types.push_back(family.model_type);
    return types;
  }();
  return all;
}

Result<Shape> family_of(std::string_view model_type) {
  if (find_family(model_type) == nullptr) {
    std::string known;
    for (const std::string_view type : model_types())
      known += (known.empty() ? "" : ", ") + std::string(type);
    return invalid("'" + std::string(model_type) + "' is no known kind of model").remedy("one of " + known);
  }
  if (model_type == "gpt2") {
    return Shape{.model_type = "gpt2",
                 .learned_positions = true,
                 .qkv_bias = true,
                 .output_bias = true,
                 .mlp_bias = true,
                 .tied = true};
  }
  return Shape{.model_type = std::string(model_type),
               .norm = Norm::rms,
               .activation = Activation::silu,
               .gated = true,
               .qkv_bias = model_type == "qwen2",
               .qk_norm = model_type == "qwen3" || model_type == "qwen3_moe",
               .tied = false};
}

Shape make_shape(std::string_view model_type, const Sizes& sizes) {
  auto family = family_of(model_type);
  TUTTI_CHECK(family.ok() && sizes.heads > 0, "the family is known");
  Shape shape = std::move(*family);
  shape.vocabulary = sizes.vocabulary;
  shape.layers = sizes.layers;
  shape.hidden = sizes.hidden;
  shape.heads = sizes.heads;
  shape.kv_heads = sizes.kv_heads == 0 ? sizes.heads : sizes.kv_heads;
  shape.head_size = sizes.head_size == 0 ? sizes.hidden / sizes.heads : sizes.head_size;
  shape.intermediate = sizes.intermediate;
  shape.context = sizes.context;
  return shape;
}

Result<Shape> parse_config(std::string_view text) {
  const auto config = json::parse(text);
  if (!config || config->object() == nullptr) return invalid("the model's configuration is no JSON object");
  const json::Value* const type = config->find("model_type");
  if (type == nullptr || type->text() == nullptr) return invalid("'model_type' is missing or no word");
  auto shape = family_of(*type->text());
  if (!shape) return shape;
  ConfigKeys keys(*config->object());
  if (shape->model_type == "gpt2") {
    read_gpt2(keys, *shape);
  } else {
    read_decoder(keys, *find_family(shape->model_type), *shape);
  }
  for (const char* key : foreign_keys) keys.none(key);
  // Each token sees those before it: models of embeddings may want it otherwise.
  keys.only("is_causal", true);
  if (!keys.problem().empty()) return invalid(keys.problem()).within("the model's configuration");
  if (auto fine = check(*shape); !fine) return std::move(fine).error();
  return shape;
}

std::string config_json(const Shape& shape) {
  const Family* const family = find_family(shape.model_type);
  TUTTI_CHECK(family != nullptr, "a shape is of a known family");
  json::Object config{{"architectures", json::Array{family->architecture}},
                      {"model_type", shape.model_type},
                      {"tie_word_embeddings", shape.tied}};
  if (shape.model_type == "gpt2") {
    write_gpt2(shape, config);
  } else {
    write_decoder(shape, *family, config);
  }
  return json::write(config, {.indent = 2}) + "\n";
}

}  // namespace tutti::model
