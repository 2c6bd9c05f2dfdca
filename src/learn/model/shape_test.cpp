#include "learn/model/shape.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace tutti::model {
namespace {

using Sizes = std::vector<std::int64_t>;

// As the files of their publishers have them, cut down to what is read.
constexpr const char* gpt2_config =
    R"({"model_type":"gpt2","activation_function":"gelu_new","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,
        "n_ctx":1024,"layer_norm_epsilon":1e-05,"vocab_size":50257,"n_inner":null})";
constexpr const char* llama_7b_config =
    R"({"model_type":"llama","hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
        "num_attention_heads":32,"max_position_embeddings":2048,"rms_norm_eps":1e-06,"vocab_size":32000,
        "tie_word_embeddings":false,"rope_scaling":null})";
constexpr const char* llama_3_8b_config =
    R"({"model_type":"llama","hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
        "num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":8192,"rms_norm_eps":1e-05,
        "rope_theta":500000.0,"vocab_size":128256,"attention_bias":false,"mlp_bias":false,"head_dim":128})";

constexpr const char* llama_3_2_1b_config =
    R"({"model_type":"llama","hidden_act":"silu","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
        "num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"max_position_embeddings":131072,
        "rms_norm_eps":1e-05,"rope_theta":500000.0,"vocab_size":128256,"attention_bias":false,"mlp_bias":false,
        "rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
        "original_max_position_embeddings":8192,"rope_type":"llama3"},"tie_word_embeddings":true})";
constexpr const char* mistral_7b_config =
    R"({"model_type":"mistral","hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
        "num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":32768,"rms_norm_eps":1e-05,
        "rope_theta":10000.0,"sliding_window":4096,"tie_word_embeddings":false,"vocab_size":32000})";
constexpr const char* qwen2_5_config =
    R"({"model_type":"qwen2","hidden_act":"silu","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
        "num_attention_heads":14,"num_key_value_heads":2,"max_position_embeddings":32768,"max_window_layers":21,
        "rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,
        "use_mrope":false,"use_sliding_window":false,"vocab_size":151936})";
constexpr const char* qwen3_config =
    R"({"model_type":"qwen3","attention_bias":false,"head_dim":128,"hidden_act":"silu","hidden_size":1024,
        "intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,
        "max_position_embeddings":40960,"max_window_layers":28,"rms_norm_eps":1e-06,"rope_scaling":null,
        "rope_theta":1000000,"sliding_window":null,"tie_word_embeddings":true,"use_sliding_window":false,
        "vocab_size":151936})";
constexpr const char* qwen3_moe_config =
    R"({"model_type":"qwen3_moe","attention_bias":false,"decoder_sparse_step":1,"head_dim":128,"hidden_act":"silu",
        "hidden_size":2048,"intermediate_size":6144,"max_position_embeddings":40960,"max_window_layers":48,
        "mlp_only_layers":[],"moe_intermediate_size":768,"norm_topk_prob":true,"num_attention_heads":32,
        "num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,"num_key_value_heads":4,
        "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000.0,"router_aux_loss_coef":0.001,
        "sliding_window":null,"tie_word_embeddings":false,"use_sliding_window":false,"vocab_size":151936})";
constexpr std::array all_configs{gpt2_config,       llama_7b_config, llama_3_8b_config, llama_3_2_1b_config,
                                 mistral_7b_config, qwen2_5_config,  qwen3_config,      qwen3_moe_config};

Shape shape_of(std::string_view config) {
  const auto shape = parse_config(config);
  EXPECT_TRUE(shape) << shape.error().text();
  return shape ? *shape : Shape{};
}

// The configuration with one thing changed in its text; why it is refused.
std::string why_not(std::string config, const std::string& from, const std::string& to) {
  const auto at = config.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  const auto shape = parse_config(config.replace(at, from.size(), to));
  return shape ? "" : shape.error().text();
}

const ForeignTensor* find(const std::vector<ForeignTensor>& all, std::string_view name) {
  const auto found = std::ranges::find(all, name, &ForeignTensor::name);
  return found == all.end() ? nullptr : &*found;
}

TEST(Shape, OfPublishedModelsHasTheirPublishedSize) {
  EXPECT_EQ(parameters(shape_of(gpt2_config)), 124'439'808);
  EXPECT_EQ(parameters(shape_of(llama_7b_config)), 6'738'415'616);
  EXPECT_EQ(parameters(shape_of(llama_3_8b_config)), 8'030'261'248);
  EXPECT_EQ(parameters(shape_of(llama_3_2_1b_config)), 1'235'814'400);
  EXPECT_EQ(parameters(shape_of(mistral_7b_config)), 7'241'732'096);
  EXPECT_EQ(parameters(shape_of(qwen2_5_config)), 494'032'768);
  EXPECT_EQ(parameters(shape_of(qwen3_config)), 596'049'920);
  EXPECT_EQ(parameters(shape_of(qwen3_moe_config)), 30'532'122'624);
}

TEST(Shape, IsReadFromAConfig) {
  const Shape gpt2 = shape_of(gpt2_config);
  EXPECT_EQ(gpt2.model_type, "gpt2");
  EXPECT_EQ(gpt2.intermediate, 3072) << "four times the hidden size where nothing is said";
  EXPECT_EQ(gpt2.kv_heads, 12);
  EXPECT_EQ(gpt2.head_size, 64);
  EXPECT_EQ(gpt2.norm, Norm::layer);
  EXPECT_EQ(gpt2.activation, Activation::gelu_tanh);
  EXPECT_TRUE(gpt2.tied && gpt2.learned_positions && gpt2.qkv_bias && gpt2.output_bias && gpt2.mlp_bias);
  EXPECT_FALSE(gpt2.gated || gpt2.qk_norm);
  const Shape llama = shape_of(llama_3_8b_config);
  EXPECT_EQ(llama.model_type, "llama");
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.rope.theta, 500'000);
  EXPECT_EQ(llama.norm, Norm::rms);
  EXPECT_EQ(llama.norm_epsilon, 1e-5);
  EXPECT_EQ(llama.activation, Activation::silu);
  EXPECT_TRUE(llama.gated);
  EXPECT_FALSE(llama.tied || llama.learned_positions || llama.qkv_bias || llama.output_bias ||
               llama.mlp_bias);
  EXPECT_EQ(shape_of(llama_7b_config).kv_heads, 32) << "as many as heads where nothing is said";
}

TEST(Shape, OfOtherFamiliesIsReadFromTheirConfigs) {
  EXPECT_EQ(shape_of(mistral_7b_config).window, 4096);
  const Shape qwen2 = shape_of(qwen2_5_config);
  EXPECT_TRUE(qwen2.qkv_bias && qwen2.tied);
  EXPECT_FALSE(qwen2.output_bias || qwen2.qk_norm);
  EXPECT_EQ(qwen2.window, 0) << "use_sliding_window is false";
  const Shape qwen3 = shape_of(qwen3_config);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_size, 128) << "not 1024 / 16";
  const Shape mixture = shape_of(qwen3_moe_config);
  EXPECT_EQ(mixture.experts, (Experts{.count = 128, .chosen = 8, .intermediate = 768, .normalized = true}));
  EXPECT_TRUE(mixture.has_experts(0) && mixture.has_experts(47));
}

TEST(Shape, HasTheDefaultsOfItsFamily) {
  const auto with = [](const char* config, const std::string& from, const std::string& to) {
    std::string changed = config;
    const auto at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return shape_of(changed.replace(at, from.size(), to));
  };
  EXPECT_EQ(with(mistral_7b_config, "\"sliding_window\":4096,", "").window, 4096);
  EXPECT_EQ(with(mistral_7b_config, "\"sliding_window\":4096", "\"sliding_window\":null").window, 0);
  EXPECT_EQ(with(mistral_7b_config, "\"num_key_value_heads\":8,", "").kv_heads, 8);
  EXPECT_EQ(with(qwen3_config, "\"head_dim\":128,", "").head_size, 128);
  EXPECT_EQ(with(qwen3_moe_config, "\"head_dim\":128,", "").head_size, 64);
  EXPECT_FALSE(with(qwen3_moe_config, "\"norm_topk_prob\":true,", "").experts.normalized);
  EXPECT_FALSE(with(qwen2_5_config, "\"tie_word_embeddings\":true,", "").tied);
  EXPECT_TRUE(with(qwen3_config, "\"attention_bias\":false", "\"attention_bias\":true").output_bias);
  EXPECT_TRUE(with(llama_3_8b_config, "\"mlp_bias\":false", "\"mlp_bias\":true").mlp_bias);
  EXPECT_EQ(with(llama_3_8b_config, "\"head_dim\":128", "\"head_dim\":64").head_size, 64);
  EXPECT_EQ(with(llama_3_8b_config, "silu", "gelu").activation, Activation::gelu);
  EXPECT_EQ(with(gpt2_config, "gelu_new", "gelu_pytorch_tanh").activation, Activation::gelu_tanh);
}

TEST(Shape, HasAWindowInAllLayersOrNone) {
  const std::string off = "\"use_sliding_window\":false";
  const std::string on = "\"use_sliding_window\":true";
  EXPECT_EQ(why_not(qwen2_5_config, off, on),
            "the model's configuration : 'max_window_layers' is 21 of 24 layers, and a window in some of the "
            "layers "
            "is not known");
  std::string config = qwen2_5_config;
  config.replace(config.find(off), off.size(), on);
  const std::string layers = "\"max_window_layers\":21";
  const auto at = config.find(layers);
  EXPECT_EQ(shape_of(std::string(config).replace(at, layers.size(), "\"max_window_layers\":0")).window,
            32768);
  EXPECT_EQ(shape_of(std::string(config).replace(at, layers.size(), "\"max_window_layers\":24")).window, 0);
  EXPECT_EQ(why_not(qwen3_config, "\"head_dim\"", "\"layer_types\":[\"full_attention\"],\"head_dim\""), "");
  EXPECT_EQ(
      why_not(qwen3_config, "\"head_dim\"", "\"layer_types\":[\"sliding_attention\"],\"head_dim\""),
      "the model's configuration : 'layer_types' is [\"sliding_attention\"], and only 'full_attention' for "
      "each layer is known");
  EXPECT_EQ(why_not(qwen3_moe_config, off, on),
            "the model's configuration : 'use_sliding_window' is true, and only false is known");
}

TEST(Shape, KnowsWhichLayersHaveExperts) {
  Shape shape = shape_of(qwen3_moe_config);
  shape.experts.every = 2;
  shape.experts.dense_layers = {3};
  EXPECT_FALSE(shape.has_experts(0));
  EXPECT_TRUE(shape.has_experts(1));
  EXPECT_FALSE(shape.has_experts(3)) << "told apart";
  EXPECT_TRUE(shape.has_experts(5));
  EXPECT_FALSE(shape_of(qwen3_config).has_experts(1));
}

TEST(Shape, SurvivesTheWayToAConfigAndBack) {
  for (const char* config : all_configs) {
    for (const bool tied : {true, false}) {
      Shape shape = shape_of(config);
      shape.tied = tied;
      EXPECT_EQ(shape_of(config_json(shape)), shape) << config;
    }
  }
  Shape mixture = shape_of(qwen3_moe_config);
  mixture.experts.every = 3;
  mixture.experts.dense_layers = {2, 5};
  mixture.qkv_bias = mixture.output_bias = true;
  EXPECT_EQ(shape_of(config_json(mixture)), mixture);
  Shape windowed = shape_of(qwen2_5_config);
  windowed.window = 100;
  EXPECT_EQ(shape_of(config_json(windowed)), windowed);
  Shape biased = shape_of(llama_3_8b_config);
  biased.qkv_bias = biased.output_bias = biased.mlp_bias = true;
  biased.head_size = 32;
  biased.activation = Activation::gelu_tanh;
  EXPECT_EQ(shape_of(config_json(biased)), biased);
}

TEST(Shape, ThatIsNoneIsRefused) {
  EXPECT_EQ(parse_config("").error().text(), "the model's configuration is no JSON object");
  EXPECT_EQ(parse_config("[]").error().text(), "the model's configuration is no JSON object");
  EXPECT_EQ(parse_config("{}").error().text(), "'model_type' is missing or no word");
  EXPECT_EQ(why_not(gpt2_config, "\"gpt2\"", "\"bert\""), "'bert' is no known kind of model");
  EXPECT_EQ(why_not(gpt2_config, "\"n_embd\":768", "\"n_embd\":\"768\""),
            "the model's configuration : 'n_embd' is missing or no whole number");
  EXPECT_EQ(why_not(gpt2_config, "\"n_layer\":12", "\"n_layers\":12"),
            "the model's configuration : 'n_layer' is missing or no whole number");
  EXPECT_EQ(why_not(gpt2_config, "1e-05", "\"small\""),
            "the model's configuration : 'layer_norm_epsilon' is no number");
  EXPECT_EQ(why_not(llama_7b_config, "\"tie_word_embeddings\":false", "\"tie_word_embeddings\":0"),
            "the model's configuration : 'tie_word_embeddings' is neither true nor false");
}

TEST(Shape, ThatCannotBeComputedHereIsRefused) {
  const std::string at = "the model's configuration : ";
  EXPECT_EQ(
      why_not(gpt2_config, "gelu_new", "relu"),
      at +
          "'activation_function' is \"relu\", and only silu, gelu, gelu_new and gelu_pytorch_tanh are known");
  EXPECT_EQ(why_not(llama_7b_config, "\"rope_scaling\":null", "\"rope_scaling\":{\"factor\":8}"),
            at + "'rope_scaling' has no rope_type");
  EXPECT_EQ(why_not(mistral_7b_config, "\"vocab_size\"", "\"attention_bias\":true,\"vocab_size\""),
            at + "'attention_bias' is true, and only false is known");
  EXPECT_EQ(why_not(qwen3_config, "\"head_dim\"", "\"mlp_bias\":true,\"head_dim\""),
            at + "'mlp_bias' is true, and only false is known");
  EXPECT_EQ(why_not(llama_7b_config, "\"rope_scaling\":null", "\"quantization_config\":{\"bits\":4}"),
            at + "'quantization_config' is {\"bits\":4}, which is not known here");
  EXPECT_EQ(why_not(llama_7b_config, "\"rope_scaling\":null", "\"is_causal\":false"),
            at + "'is_causal' is false, and only true is known");
  EXPECT_EQ(why_not(qwen3_moe_config, "\"mlp_only_layers\":[]", "\"mlp_only_layers\":\"all\""),
            at + "'mlp_only_layers' is no list of layers");
  EXPECT_EQ(why_not(llama_7b_config, "\"num_attention_heads\":32", "\"num_attention_heads\":33"),
            at + "'num_attention_heads' does not divide hidden_size, and head_dim says nothing else");
}

TEST(Shape, WhoseSizesDoNotFitIsRefused) {
  const std::string bounds = "the model's shape : each size must lie between 1 and 16,777,216";
  EXPECT_EQ(why_not(gpt2_config, "50257", "0"), bounds);
  EXPECT_EQ(why_not(gpt2_config, "50257", "-1"), bounds);
  EXPECT_EQ(why_not(gpt2_config, "50257", "16777217"), bounds);
  EXPECT_EQ(why_not(gpt2_config, "\"n_head\":12", "\"n_head\":0"), bounds);
  EXPECT_EQ(why_not(gpt2_config, "\"n_head\":12", "\"n_head\":7"),
            "the model's shape : the hidden size must be a multiple of the heads");
  EXPECT_EQ(why_not(llama_3_8b_config, "\"num_key_value_heads\":8", "\"num_key_value_heads\":5"),
            "the model's shape : the heads must be a multiple of the key-value heads");
  for (const char* number : {"0", "-1e-06", "1e-300", "1.5", "1e300", "1e39"}) {
    EXPECT_EQ(why_not(llama_7b_config, "1e-06", number),
              "the model's shape : the norms' epsilon (rms_norm_eps, layer_norm_epsilon) must lie between "
              "1e-30 and 1")
        << number;
  }
  EXPECT_EQ(why_not(llama_7b_config, "\"num_hidden_layers\":32", "\"num_hidden_layers\":16777216"),
            "the model's shape : there are at most 4,096 layers");
  EXPECT_EQ(why_not(llama_3_8b_config, "\"head_dim\":128", "\"head_dim\":16777216"),
            "the model's shape : all heads together have at most 16,777,216 numbers");
  EXPECT_EQ(why_not(llama_7b_config, "\"intermediate_size\":11008", "\"intermediate_size\":0"), bounds);
  EXPECT_EQ(why_not(mistral_7b_config, "\"sliding_window\":4096", "\"sliding_window\":-1"),
            "the model's shape : a window has at most 16,777,216 positions");
  Shape odd = shape_of(llama_7b_config);
  odd.head_size = 1;
  EXPECT_EQ(check(odd).error().text(), "the model's shape : a head must have an even size");
  Shape shared = shape_of(gpt2_config);
  shared.kv_heads = 4;
  EXPECT_EQ(check(shared).error().text(), "the model's shape : gpt2 has as many key-value heads as heads");
}

TEST(Shape, WhoseExpertsDoNotFitIsRefused) {
  const auto refused = [](const std::string& from, const std::string& to) {
    return why_not(qwen3_moe_config, from, to);
  };
  const std::string at = "the model's shape : ";
  EXPECT_EQ(refused("\"num_experts\":128", "\"num_local_experts\":-1"),
            at + "there are at most 4,096 experts");
  EXPECT_EQ(refused("\"num_experts\":128", "\"num_experts\":-1"), at + "there are at most 4,096 experts");
  EXPECT_EQ(refused("\"num_experts\":128", "\"num_experts\":16777216"),
            at + "there are at most 4,096 experts");
  EXPECT_EQ(refused("\"num_experts\":128", "\"num_experts\":4096"),
            at + "it has too many experts in too many layers");
  EXPECT_EQ(refused("\"num_experts_per_tok\":8", "\"num_experts_per_tok\":129"),
            at + "the experts of a token lie between 1 and all of them");
  EXPECT_EQ(refused("\"decoder_sparse_step\":1", "\"decoder_sparse_step\":0"),
            at + "each size of the experts must lie between 1 and 16,777,216");
  EXPECT_EQ(refused("\"mlp_only_layers\":[]", "\"mlp_only_layers\":[48]"),
            at + "a layer without experts is none of the model's");
  Shape huge = shape_of(qwen3_moe_config);
  huge.experts.intermediate = huge.hidden = 1 << 24;
  EXPECT_EQ(check(huge).error().text(), at + "it has more than 10^15 parameters");
}

TEST(Shape, TellsWhatIsAnotherThanInItsTensors) {
  const Shape then = shape_of(llama_3_8b_config);
  EXPECT_EQ(difference(then, then), "");
  Shape now = then;
  now.layers = 4;
  EXPECT_EQ(difference(then, now), "layers is 32 there and 4 here");
  now = then;
  now.context = 64;
  EXPECT_EQ(difference(then, now), "") << "rotary positions are no tensors";
  now.rope.theta = 1;
  EXPECT_EQ(difference(then, now), "the rotary positions are others");
  now = then;
  now.qk_norm = true;
  EXPECT_EQ(difference(then, now), "the norm of queries and keys is false there and true here");
  now = then;
  now.activation = Activation::gelu;
  EXPECT_EQ(difference(then, now), "the activation is \"silu\" there and \"gelu\" here");
  now = then;
  now.experts.count = 4;
  EXPECT_EQ(difference(then, now), "the experts are others");
  Shape gpt2 = shape_of(gpt2_config);
  gpt2.context = 64;
  EXPECT_EQ(difference(shape_of(gpt2_config), gpt2), "context is 1024 there and 64 here");
}

TEST(Shape, KnowsItsFamiliesByName) {
  for (const std::string_view type : model_types()) EXPECT_EQ(family_of(type).value().model_type, type);
  EXPECT_EQ(family_of("GPT2").error().text(), "'GPT2' is no known kind of model");
}

TEST(Units, AreTheEmbeddingTheBlocksAndTheHead) {
  Shape shape = shape_of(gpt2_config);
  const auto tied = units(shape);
  ASSERT_EQ(tied.size(), 14U);
  EXPECT_EQ(tied.front().kind, Unit::Kind::embedding);
  EXPECT_EQ(tied[1].kind, Unit::Kind::block);
  EXPECT_EQ(tied[12].layer, 11);
  EXPECT_EQ(tied.back().kind, Unit::Kind::head);
  EXPECT_EQ(tied.back().tensors.size(), 2U);
  shape.tied = false;
  EXPECT_EQ(units(shape).back().tensors.size(), 3U);
  EXPECT_EQ(parameters(shape), 124'439'808 + 50257 * 768);
}

TEST(Units, SayHowATensorIsSplitAndBegins) {
  const auto block = units(shape_of(gpt2_config))[1];
  const auto tensor = [&](std::string_view name) {
    return *std::ranges::find(block.tensors, name, &Tensor::name);
  };
  EXPECT_EQ(tensor("h.0.attn.q.weight").split, Split::rows);
  EXPECT_TRUE(tensor("h.0.attn.q.weight").decays);
  EXPECT_EQ(tensor("h.0.attn.c_proj.weight").split, Split::columns);
  EXPECT_NEAR(tensor("h.0.attn.c_proj.weight").deviation, 0.02 / std::sqrt(24.0), 1e-9);
  EXPECT_EQ(tensor("h.0.ln_1.weight").split, Split::whole);
  EXPECT_TRUE(tensor("h.0.ln_1.weight").starts_at_one);
  EXPECT_FALSE(tensor("h.0.ln_1.weight").decays);
  EXPECT_EQ(tensor("h.0.attn.c_proj.bias").split, Split::whole) << "it is added once, after the sum";
}

TEST(ForeignTensors, OfGpt2HaveTheirNamesAndShapes) {
  const auto all = foreign_tensors(shape_of(gpt2_config));
  EXPECT_EQ(all.size(), 148U);
  const auto* fused = find(all, "h.0.attn.c_attn.weight");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->shape, (Sizes{768, 2304}));
  EXPECT_EQ(fused->parts,
            (std::vector<std::string>{"h.0.attn.q.weight", "h.0.attn.k.weight", "h.0.attn.v.weight"}));
  EXPECT_TRUE(fused->transposed);
  const auto* bias = find(all, "h.0.attn.c_attn.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->shape, Sizes{2304});
  EXPECT_FALSE(bias->transposed);
  const auto* linear = find(all, "h.11.mlp.c_fc.weight");
  ASSERT_NE(linear, nullptr);
  EXPECT_EQ(linear->shape, (Sizes{768, 3072}));
  EXPECT_TRUE(linear->transposed);
  const auto* embedding = find(all, "wte.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (Sizes{50257, 768}));
  EXPECT_FALSE(embedding->transposed);
  EXPECT_EQ(find(all, "lm_head.weight"), nullptr) << "tied";
}

TEST(ForeignTensors, OfLlamaAreOursAsTheyAre) {
  const auto all = foreign_tensors(shape_of(llama_3_8b_config));
  EXPECT_EQ(all.size(), 291U);
  const auto* keys = find(all, "model.layers.31.self_attn.k_proj.weight");
  ASSERT_NE(keys, nullptr);
  EXPECT_EQ(keys->shape, (Sizes{1024, 4096}));
  EXPECT_FALSE(keys->transposed);
  ASSERT_NE(find(all, "lm_head.weight"), nullptr);
  EXPECT_EQ(find(all, "lm_head.weight")->shape, (Sizes{128'256, 4096}));
}

TEST(ForeignTensors, OfEachFeatureHaveTheirNamesAndShapes) {
  const auto shape_in = [](const char* config, std::string_view name) {
    const auto all = foreign_tensors(shape_of(config));
    const auto* const found = find(all, name);
    return found == nullptr ? Sizes{} : found->shape;
  };
  EXPECT_EQ(shape_in(qwen2_5_config, "model.layers.3.self_attn.k_proj.bias"), Sizes{128});
  EXPECT_EQ(shape_in(qwen2_5_config, "model.layers.3.self_attn.o_proj.bias"), Sizes{});
  EXPECT_EQ(shape_in(qwen2_5_config, "lm_head.weight"), Sizes{});
  EXPECT_EQ(shape_in(qwen3_config, "model.layers.0.self_attn.q_norm.weight"), Sizes{128});
  EXPECT_EQ(shape_in(qwen3_config, "model.layers.0.self_attn.q_proj.weight"), (Sizes{2048, 1024}));
  EXPECT_EQ(shape_in(qwen3_config, "model.layers.0.self_attn.o_proj.weight"), (Sizes{1024, 2048}));
  EXPECT_EQ(shape_in(qwen3_moe_config, "model.layers.47.mlp.gate.weight"), (Sizes{128, 2048}));
  EXPECT_EQ(shape_in(qwen3_moe_config, "model.layers.47.mlp.experts.127.down_proj.weight"),
            (Sizes{2048, 768}));
  EXPECT_EQ(shape_in(qwen3_moe_config, "model.layers.47.mlp.up_proj.weight"), Sizes{});
}

TEST(ForeignTensors, HoldEachOfOursOnce) {
  for (const char* config : all_configs) {
    const Shape shape = shape_of(config);
    std::multiset<std::string> ours;
    for (const Unit& unit : units(shape)) {
      for (const Tensor& tensor : unit.tensors) ours.insert(tensor.name);
    }
    std::multiset<std::string> held;
    for (const ForeignTensor& tensor : foreign_tensors(shape))
      held.insert(tensor.parts.begin(), tensor.parts.end());
    EXPECT_EQ(held, ours);
  }
}

}  // namespace
}  // namespace tutti::model
