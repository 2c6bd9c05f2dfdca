#include "learn/model/shape.hpp"

#include <algorithm>
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
}

TEST(Shape, IsReadFromAConfig) {
  const Shape gpt2 = shape_of(gpt2_config);
  EXPECT_EQ(gpt2.family, Family::gpt2);
  EXPECT_EQ(gpt2.intermediate, 3072) << "four times the hidden size where nothing is said";
  EXPECT_EQ(gpt2.kv_heads, 12);
  EXPECT_EQ(gpt2.head_size(), 64);
  EXPECT_TRUE(gpt2.tied);
  const Shape llama = shape_of(llama_3_8b_config);
  EXPECT_EQ(llama.family, Family::llama);
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.rope.theta, 500'000);
  EXPECT_EQ(llama.norm_epsilon, 1e-5);
  EXPECT_FALSE(llama.tied);
  EXPECT_EQ(shape_of(llama_7b_config).kv_heads, 32) << "as many as heads where nothing is said";
}

TEST(Shape, SurvivesTheWayToAConfigAndBack) {
  for (const char* config : {gpt2_config, llama_7b_config, llama_3_8b_config}) {
    for (const bool tied : {true, false}) {
      Shape shape = shape_of(config);
      shape.tied = tied;
      EXPECT_EQ(shape_of(config_json(shape)), shape) << config;
    }
  }
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
  EXPECT_EQ(why_not(gpt2_config, "gelu_new", "relu"),
            "the model's configuration : 'activation_function' is \"relu\", and only \"gelu_new\" is known");
  EXPECT_EQ(why_not(llama_7b_config, "\"rope_scaling\":null", "\"rope_scaling\":{\"factor\":8}"),
            "the model's configuration : 'rope_scaling' has no rope_type");
  EXPECT_EQ(why_not(llama_3_8b_config, "\"head_dim\":128", "\"head_dim\":64"),
            "the model's configuration : 'head_dim' is 64, and only 128 is known");
  EXPECT_EQ(why_not(llama_3_8b_config, "\"mlp_bias\":false", "\"mlp_bias\":true"),
            "the model's configuration : 'mlp_bias' is true, and only false is known");
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
  EXPECT_EQ(why_not(llama_7b_config, "1e-06", "0"),
            "the model's shape : norm epsilon and rope theta are positive");
  Shape odd = shape_of(llama_7b_config);
  odd.hidden = odd.heads;
  EXPECT_EQ(check(odd).error().text(), "the model's shape : a head must have an even size");
  Shape shared = shape_of(gpt2_config);
  shared.kv_heads = 4;
  EXPECT_EQ(check(shared).error().text(), "the model's shape : gpt2 has as many key-value heads as heads");
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
  Shape gpt2 = shape_of(gpt2_config);
  gpt2.context = 64;
  EXPECT_EQ(difference(shape_of(gpt2_config), gpt2), "context is 1024 there and 64 here");
}

TEST(Shape, KnowsItsFamiliesByName) {
  for (const Family family : {Family::gpt2, Family::llama}) EXPECT_EQ(*parse_family(name_of(family)), family);
  EXPECT_FALSE(parse_family("GPT2"));
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

TEST(ForeignTensors, HoldEachOfOursOnce) {
  for (const char* config : {gpt2_config, llama_3_8b_config}) {
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
