#include "learn/model/shape.hpp"

#include <cmath>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::model {
namespace {

constexpr std::int64_t size_max = std::int64_t{1} << 24;
constexpr double initial_deviation = 0.02;

// Takes the keys of a configuration, and remembers the first that is wrong.
class Keys {
 public:
  explicit Keys(const json::Object& config) : config_(config) {}

  std::int64_t required(const char* key) {
    const json::Value* const found = config_.find(key);
    return taken(key, found == nullptr ? std::nullopt : found->whole(), "is missing or no whole number");
  }
  std::int64_t optional(const char* key, std::int64_t otherwise) {
    return lacks(key) ? otherwise : required(key);
  }
  double number(const char* key, double otherwise) {
    return lacks(key) ? otherwise : taken(key, config_.find(key)->number(), "is no number");
  }
  bool toggle(const char* key, bool otherwise) {
    return lacks(key) ? otherwise : taken(key, config_.find(key)->boolean(), "is neither true nor false");
  }
  // What cannot be computed here must not be passed over in silence.
  void only(const char* key, const json::Value& value) {
    const json::Value* const found = config_.find(key);
    if (found == nullptr || *found == value) return;
    tell(key, "is " + json::write(*found) + ", and only " + json::write(value) + " is known");
  }
  Rope rope() {
    auto parsed = parse_rope(config_);
    if (parsed) return *parsed;
    if (problem_.empty()) problem_ = parsed.error().message();
    return {};
  }
  const std::string& problem() const { return problem_; }

 private:
  // Missing or null.
  bool lacks(const char* key) const {
    const json::Value* const found = config_.find(key);
    return found == nullptr || found->is_null();
  }
  template <class T>
  T taken(const char* key, std::optional<T> value, const char* otherwise) {
    if (!value) tell(key, otherwise);
    return value.value_or(T{});
  }
  void tell(const char* key, const std::string& problem) {
    if (problem_.empty()) problem_ = "'" + std::string(key) + "' " + problem;
  }

  const json::Object& config_;
  std::string problem_;
};

Shape gpt2_shape(Keys& keys) {
  Shape shape{.family = Family::gpt2,
              .vocabulary = keys.required("vocab_size"),
              .layers = keys.required("n_layer"),
              .hidden = keys.required("n_embd"),
              .heads = keys.required("n_head")};
  shape.kv_heads = shape.heads;
  shape.intermediate = keys.optional("n_inner", 4 * shape.hidden);
  shape.context = keys.required("n_positions");
  shape.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  shape.tied = keys.toggle("tie_word_embeddings", true);
  keys.only("activation_function", "gelu_new");
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("reorder_and_upcast_attn", false);
  return shape;
}

Shape llama_shape(Keys& keys) {
  Shape shape{.family = Family::llama,
              .vocabulary = keys.required("vocab_size"),
              .layers = keys.required("num_hidden_layers"),
              .hidden = keys.required("hidden_size"),
              .heads = keys.required("num_attention_heads")};
  shape.kv_heads = keys.optional("num_key_value_heads", shape.heads);
  shape.intermediate = keys.required("intermediate_size");
  shape.context = keys.required("max_position_embeddings");
  shape.norm_epsilon = keys.number("rms_norm_eps", 1e-6);
  shape.rope = keys.rope();
  shape.tied = keys.toggle("tie_word_embeddings", false);
  keys.only("hidden_act", "silu");
  keys.only("attention_bias", false);
  keys.only("mlp_bias", false);
  if (shape.heads > 0) keys.only("head_dim", shape.head_size());
  return shape;
}

Tensor matrix(std::string name, std::int64_t out, std::int64_t in, Split split,
              double deviation = initial_deviation) {
  return {
      .name = std::move(name), .shape = {out, in}, .split = split, .decays = true, .deviation = deviation};
}
Tensor scale(std::string name, std::int64_t size) {
  return {.name = std::move(name), .shape = {size}, .starts_at_one = true};
}
Tensor bias(std::string name, std::int64_t size, Split split = Split::whole) {
  return {.name = std::move(name), .shape = {size}, .split = split};
}

Unit gpt2_block(const Shape& shape, std::int64_t layer) {
  const std::string at = "h." + std::to_string(layer) + ".";
  const std::int64_t c = shape.hidden;
  // What adds to the residual stream starts smaller, the more layers add to it.
  const double residual = initial_deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
  return {Unit::Kind::block,
          layer,
          {scale(at + "ln_1.weight", c), bias(at + "ln_1.bias", c),
           matrix(at + "attn.q.weight", c, c, Split::rows), matrix(at + "attn.k.weight", c, c, Split::rows),
           matrix(at + "attn.v.weight", c, c, Split::rows), bias(at + "attn.q.bias", c, Split::rows),
           bias(at + "attn.k.bias", c, Split::rows), bias(at + "attn.v.bias", c, Split::rows),
           matrix(at + "attn.c_proj.weight", c, c, Split::columns, residual),
           bias(at + "attn.c_proj.bias", c), scale(at + "ln_2.weight", c), bias(at + "ln_2.bias", c),
           matrix(at + "mlp.c_fc.weight", shape.intermediate, c, Split::rows),
           bias(at + "mlp.c_fc.bias", shape.intermediate, Split::rows),
           matrix(at + "mlp.c_proj.weight", c, shape.intermediate, Split::columns, residual),
           bias(at + "mlp.c_proj.bias", c)}};
}

Unit llama_block(const Shape& shape, std::int64_t layer) {
  const std::string at = "model.layers." + std::to_string(layer) + ".";
  const std::int64_t c = shape.hidden;
  const std::int64_t kv = shape.kv_heads * shape.head_size();
  const double residual = initial_deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
  return {Unit::Kind::block,
          layer,
          {scale(at + "input_layernorm.weight", c), matrix(at + "self_attn.q_proj.weight", c, c, Split::rows),
           matrix(at + "self_attn.k_proj.weight", kv, c, Split::rows),
           matrix(at + "self_attn.v_proj.weight", kv, c, Split::rows),
           matrix(at + "self_attn.o_proj.weight", c, c, Split::columns, residual),
           scale(at + "post_attention_layernorm.weight", c),
           matrix(at + "mlp.gate_proj.weight", shape.intermediate, c, Split::rows),
           matrix(at + "mlp.up_proj.weight", shape.intermediate, c, Split::rows),
           matrix(at + "mlp.down_proj.weight", c, shape.intermediate, Split::columns, residual)}};
}

}  // namespace

std::string_view name_of(Family family) {
  switch (family) {
    case Family::gpt2:
      return "gpt2";
    case Family::llama:
      return "llama";
  }
  return "";
}

Result<Family> parse_family(std::string_view word) {
  if (word == "gpt2") return Family::gpt2;
  if (word == "llama") return Family::llama;
  return invalid("'" + std::string(word) + "' is no known kind of model").remedy("gpt2 or llama");
}

Result<Shape> parse_config(std::string_view text) {
  const auto config = json::parse(text);
  if (!config || config->object() == nullptr) return invalid("the model's configuration is no JSON object");
  const json::Value* const type = config->find("model_type");
  if (type == nullptr || type->text() == nullptr) return invalid("'model_type' is missing or no word");
  auto family = parse_family(*type->text());
  if (!family) return std::move(family).error();
  Keys keys(*config->object());
  const Shape shape = *family == Family::gpt2 ? gpt2_shape(keys) : llama_shape(keys);
  if (!keys.problem().empty()) return invalid(keys.problem()).within("the model's configuration");
  if (auto fine = check(shape); !fine) return std::move(fine).error();
  return shape;
}

std::string config_json(const Shape& shape) {
  json::Object config;
  if (shape.family == Family::gpt2) {
    config = {{"architectures", json::Array{"GPT2LMHeadModel"}},
              {"model_type", "gpt2"},
              {"vocab_size", shape.vocabulary},
              {"n_layer", shape.layers},
              {"n_embd", shape.hidden},
              {"n_head", shape.heads},
              {"n_inner", shape.intermediate},
              {"n_positions", shape.context},
              {"layer_norm_epsilon", shape.norm_epsilon},
              {"activation_function", "gelu_new"},
              {"tie_word_embeddings", shape.tied}};
  } else {
    config = {{"architectures", json::Array{"LlamaForCausalLM"}},
              {"model_type", "llama"},
              {"vocab_size", shape.vocabulary},
              {"num_hidden_layers", shape.layers},
              {"hidden_size", shape.hidden},
              {"num_attention_heads", shape.heads},
              {"num_key_value_heads", shape.kv_heads},
              {"intermediate_size", shape.intermediate},
              {"max_position_embeddings", shape.context},
              {"rms_norm_eps", shape.norm_epsilon},
              {"hidden_act", "silu"},
              {"attention_bias", false},
              {"tie_word_embeddings", shape.tied}};
    write_rope(shape.rope, config);
  }
  return json::write(config, {.indent = 2}) + "\n";
}

std::string difference(const Shape& then, const Shape& now) {
  std::string text;
  const auto compare = [&](const char* name, const auto& before, const auto& here) {
    if (before == here || !text.empty()) return;
    text = std::string(name) + " is " + json::write(json::Value(before)) + " there and " +
           json::write(json::Value(here)) + " here";
  };
  compare("the family", std::string(name_of(then.family)), std::string(name_of(now.family)));
  compare("layers", then.layers, now.layers);
  compare("hidden", then.hidden, now.hidden);
  compare("heads", then.heads, now.heads);
  compare("kv_heads", then.kv_heads, now.kv_heads);
  compare("intermediate", then.intermediate, now.intermediate);
  compare("the vocabulary", then.vocabulary, now.vocabulary);
  compare("the head's tie to the embedding", then.tied, now.tied);
  compare("the norms' epsilon", then.norm_epsilon, now.norm_epsilon);
  // Learned positions are tensors; rotary ones are computed for as many as there are.
  if (now.family == Family::gpt2) compare("context", then.context, now.context);
  if (text.empty() && now.family == Family::llama && then.rope != now.rope)
    text = "the rotary positions are others";
  return text;
}

Result<> check(const Shape& shape) {
  const auto problem = [&]() -> std::string {
    for (const std::int64_t size : {shape.vocabulary, shape.layers, shape.hidden, shape.heads, shape.kv_heads,
                                    shape.intermediate, shape.context}) {
      if (size < 1 || size > size_max) return "each size must lie between 1 and 16,777,216";
    }
    if (shape.hidden % shape.heads != 0) return "the hidden size must be a multiple of the heads";
    if (shape.heads % shape.kv_heads != 0) return "the heads must be a multiple of the key-value heads";
    if (shape.family == Family::gpt2 && shape.kv_heads != shape.heads) {
      return "gpt2 has as many key-value heads as heads";
    }
    if (shape.family == Family::llama && shape.head_size() % 2 != 0) return "a head must have an even size";
    if (!(shape.norm_epsilon > 0) || !(shape.rope.theta > 0))
      return "norm epsilon and rope theta are positive";
    return "";
  }();
  if (!problem.empty()) return invalid(problem).within("the model's shape");
  return {};
}

std::int64_t Tensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::vector<Unit> units(const Shape& shape) {
  const bool gpt2 = shape.family == Family::gpt2;
  const std::int64_t c = shape.hidden;
  std::vector<Unit> all;
  Unit embedding{Unit::Kind::embedding, 0, {}};
  embedding.tensors.push_back(
      matrix(gpt2 ? "wte.weight" : "model.embed_tokens.weight", shape.vocabulary, c, Split::vocabulary));
  if (gpt2) embedding.tensors.push_back(matrix("wpe.weight", shape.context, c, Split::whole));
  all.push_back(std::move(embedding));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    all.push_back(gpt2 ? gpt2_block(shape, layer) : llama_block(shape, layer));
  }
  Unit head{Unit::Kind::head, 0, {}};
  head.tensors.push_back(scale(gpt2 ? "ln_f.weight" : "model.norm.weight", c));
  if (gpt2) head.tensors.push_back(bias("ln_f.bias", c));
  if (!shape.tied) head.tensors.push_back(matrix("lm_head.weight", shape.vocabulary, c, Split::vocabulary));
  all.push_back(std::move(head));
  return all;
}

std::int64_t parameters(const Shape& shape) {
  std::int64_t sum = 0;
  for (const Unit& unit : units(shape)) {
    for (const Tensor& tensor : unit.tensors) sum += tensor.elements();
  }
  return sum;
}

double operations_per_token(const Shape& shape, std::int64_t length) {
  const auto width = static_cast<double>(shape.hidden * shape.layers);
  return 6.0 * static_cast<double>(parameters(shape)) + 12.0 * width * static_cast<double>(length);
}

std::vector<ForeignTensor> foreign_tensors(const Shape& shape) {
  std::vector<ForeignTensor> all;
  const bool gpt2 = shape.family == Family::gpt2;
  for (const Unit& unit : units(shape)) {
    for (const Tensor& tensor : unit.tensors) {
      const std::string& name = tensor.name;
      const auto q = name.find("attn.q.");
      if (!gpt2) {
        all.push_back({name, tensor.shape, {name}, false});
      } else if (q != std::string::npos) {
        // Queries, keys and values are one tensor there.
        const std::string before = name.substr(0, q) + "attn.";
        const std::string after = name.substr(q + 6);
        ForeignTensor fused{before + "c_attn" + after,
                            tensor.shape,
                            {name, before + "k" + after, before + "v" + after},
                            tensor.shape.size() == 2};
        fused.shape.back() = tensor.shape.size() == 2 ? 3 * shape.hidden : 3 * tensor.shape.front();
        if (fused.transposed) fused.shape.front() = shape.hidden;
        all.push_back(std::move(fused));
      } else if (name.find("attn.k.") == std::string::npos && name.find("attn.v.") == std::string::npos) {
        const bool linear = unit.kind == Unit::Kind::block && tensor.shape.size() == 2;
        ForeignTensor same{name, tensor.shape, {name}, linear};
        if (linear) std::swap(same.shape[0], same.shape[1]);
        all.push_back(std::move(same));
      }
    }
  }
  return all;
}

}  // namespace tutti::model
