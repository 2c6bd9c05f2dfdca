#include "learn/model/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/json/parse.hpp"
#include "learn/model/shape.hpp"

namespace tutti::model {
namespace {

std::string llama_with(const std::string& more) {
  return R"({"model_type":"llama","hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,)"
         R"("num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,)"
         R"("max_position_embeddings":131072,"rms_norm_eps":1e-05,"vocab_size":128256)" +
         more + "}";
}

std::string why_not(const std::string& more) {
  const auto shape = parse_config(llama_with(more));
  return shape ? "" : shape.error().text();
}

// As Llama 3.1 and its successors have it.
constexpr const char* llama_3_1 =
    R"(,"rope_theta":500000.0,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
    R"("original_max_position_embeddings":8192,"rope_type":"llama3"})";

TEST(Rope, OfNewerModelsIsComputedAsTheirPublishersDo) {
  const auto shape = parse_config(llama_with(llama_3_1));
  ASSERT_TRUE(shape) << shape.error().text();
  EXPECT_EQ(shape->rope.kind, Rope::Kind::llama3);
  const auto got = frequencies(shape->rope, 128);
  const auto plain = frequencies({.theta = 500000}, 128);
  ASSERT_EQ(got.size(), 64U);
  EXPECT_EQ(got.front(), plain.front()) << "what turns often stays as it is";
  EXPECT_DOUBLE_EQ(got.back(), plain.back() / 8) << "what turns seldom is stretched";
  // By the formula of the reference: wavelengths between 8192 / 4 and 8192 / 1 are mixed.
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double wavelength = 2 * M_PI / plain[i];
    double expected = plain[i];
    if (wavelength > 8192.0) {
      expected = plain[i] / 8;
    } else if (wavelength > 8192.0 / 4) {
      const double smooth = (8192 / wavelength - 1) / 3;
      expected = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
    }
    EXPECT_NEAR(got[i] / expected, 1, 1e-12) << i;
  }
}

// As Qwen 2.5 and 3 are told to stretch theirs.
constexpr const char* qwen_yarn = R"(,"rope_theta":1000000.0,"rope_scaling":{"type":"yarn","factor":4.0,)"
                                  R"("original_max_position_embeddings":32768})";

// The numbers are those of transformers' own formula, computed apart from this program.
TEST(Rope, OfYarnIsWhatTransformersComputes) {
  const auto expect = [](const std::string& more, std::int64_t head_size, double factor,
                         const std::vector<std::pair<std::size_t, double>>& speeds) {
    const auto shape = parse_config(llama_with(more));
    ASSERT_TRUE(shape) << shape.error().text();
    EXPECT_EQ(shape->rope.kind, Rope::Kind::yarn);
    EXPECT_NEAR(shape->rope.attention_factor, factor, 1e-12) << more;
    const auto got = frequencies(shape->rope, head_size);
    ASSERT_EQ(got.size(), static_cast<std::size_t>(head_size / 2));
    for (const auto& [pair, speed] : speeds) EXPECT_NEAR(got[pair] / speed, 1, 1e-12) << more << " " << pair;
  };
  expect(qwen_yarn, 128, 1.138629436111989,
         {{0, 1},
          {23, 0.006978305848598663},
          {24, 0.005375321490790102},
          {30, 0.0010643609812470017},
          {39, 6.490394320837028e-05},
          {40, 4.445698525097307e-05},
          {63, 3.102344401879299e-07}});
  // As it is between the pairs, where nothing is rounded.
  expect(R"(,"rope_parameters":{"rope_type":"yarn","rope_theta":150000.0,"factor":32.0,"beta_fast":32.0,)"
         R"("beta_slow":1.0,"truncate":false,"original_max_position_embeddings":4096})",
         64, 1.3465735902799727,
         {{8, 0.050813274815461475}, {12, 0.006794959489732219}, {17, 0.00012931870124506317}});
  // Two scales, of which one is taken back.
  expect(R"(,"rope_scaling":{"type":"yarn","factor":40,"mscale":0.707,"mscale_all_dim":1.0,)"
         R"("original_max_position_embeddings":4096})",
         64, 0.9210423553163399, {{10, 0.056234132519034905}, {16, 0.0055}, {23, 3.33380358040831e-05}});
}

TEST(Rope, OfYarnIsReadInEveryFormThatIsKnown) {
  const auto rope = [](const std::string& more) { return parse_config(llama_with(more)).value().rope; };
  const auto yarn = [&](const std::string& more) {
    return rope(R"(,"rope_scaling":{"rope_type":"yarn","factor":4)" + more + "}");
  };
  EXPECT_EQ(yarn("").original_context, 131'072) << "the model's own";
  EXPECT_EQ(rope(R"(,"original_max_position_embeddings":100,"rope_scaling":{"type":"yarn","factor":4})")
                .original_context,
            100);
  EXPECT_EQ(yarn(R"(,"attention_factor":1.5,"mscale":2,"mscale_all_dim":1)").attention_factor, 1.5);
  EXPECT_EQ(yarn(R"(,"mscale":1.0)"), yarn("")) << "one without the other counts nothing";
  EXPECT_EQ(yarn(R"(,"mscale":1.0,"mscale_all_dim":0.0)"), yarn(""));
  EXPECT_EQ(yarn(R"(,"beta_fast":null,"beta_slow":1,"truncate":true)"), yarn(""));
  EXPECT_EQ(rope(R"(,"rope_scaling":{"type":"yarn","factor":1})").attention_factor, 1);
}

TEST(Rope, OfYarnThatIsNonsenseIsRefusedByName) {
  const auto yarn = [](const std::string& more) {
    const std::string why = why_not(R"(,"rope_scaling":{"rope_type":"yarn")" + more + "}");
    const std::string at = "the model's configuration : 'rope_scaling.";
    EXPECT_TRUE(why.starts_with(at)) << more << ": " << why;
    return why.substr(std::min(at.size(), why.size()));
  };
  EXPECT_EQ(yarn(""), "factor' is missing or no positive number");
  EXPECT_EQ(yarn(R"(,"factor":0.5)"), "factor' must be at least 1");
  EXPECT_EQ(yarn(R"(,"factor":-4)"), "factor' is missing or no positive number");
  EXPECT_EQ(yarn(R"(,"factor":"4")"), "factor' is missing or no positive number");
  EXPECT_EQ(yarn(R"(,"factor":4,"beta_fast":0)"), "beta_fast' is missing or no positive number");
  EXPECT_EQ(yarn(R"(,"factor":4,"beta_fast":1,"beta_slow":2)"), "beta_fast' must be at least beta_slow");
  EXPECT_EQ(yarn(R"(,"factor":4,"truncate":null)"), "truncate' is neither true nor false");
  EXPECT_EQ(yarn(R"(,"factor":4,"mscale":-1)"), "mscale' is no number from 0 on");
  EXPECT_EQ(yarn(R"(,"factor":4,"attention_factor":0)"),
            "attention_factor' is missing or no positive number");
  EXPECT_EQ(yarn(R"(,"factor":4,"attention_factor":1e30)"),
            "attention_factor' multiplies queries and keys by nothing, or by more than 1,024");
  EXPECT_EQ(yarn(R"(,"factor":4,"mscale":1e300,"mscale_all_dim":1)"),
            "mscale' multiplies queries and keys by nothing, or by more than 1,024");
  for (const char* context : {"0", "-8", "32.5", "\"long\""}) {
    EXPECT_EQ(yarn(R"(,"factor":4,"original_max_position_embeddings":)" + std::string(context)),
              "original_max_position_embeddings' is missing or no positive whole number");
  }
  EXPECT_EQ(yarn(R"(,"factor":4,"original_max_position_embeddings":1e300)"),
            "original_max_position_embeddings' is too large");
  EXPECT_EQ(yarn(R"(,"factor":4,"original_max_position_embeddings":8},"original_max_position_embeddings":9)"
                 R"(,"x":{)"),
            "original_max_position_embeddings' is another one than the model's own");
  EXPECT_EQ(yarn(R"(,"factor":4,"rope_theta":1)"), "rope_theta' must be above 1 for yarn");
  EXPECT_EQ(yarn(R"(,"factor":4,"finetuned":true)"), "finetuned' is true, which is not known here");
}

TEST(Rope, IsReadInEveryFormThatIsKnown) {
  const auto rope = [](const std::string& more) { return parse_config(llama_with(more)).value().rope; };
  EXPECT_EQ(rope(""), Rope());
  EXPECT_EQ(rope(R"(,"rope_scaling":null,"rope_theta":1000)"), Rope{.theta = 1000});
  EXPECT_EQ(rope(R"(,"rope_scaling":{"type":"linear","factor":2})"),
            (Rope{.kind = Rope::Kind::linear, .factor = 2}));
  EXPECT_EQ(rope(R"(,"rope_parameters":{"rope_type":"default","rope_theta":500000.0})"),
            Rope{.theta = 500000});
  EXPECT_EQ(rope(R"(,"rope_parameters":{"rope_type":"default","partial_rotary_factor":1.0})"), Rope());
}

TEST(Rope, ThatIsNotKnownIsRefusedByName) {
  const std::string at = "the model's configuration : ";
  EXPECT_EQ(
      why_not(R"(,"rope_scaling":{"rope_type":"dynamic","factor":4})"),
      at + "'rope_scaling' is of the type \"dynamic\", and only default, linear, llama3 and yarn are known");
  EXPECT_EQ(why_not(R"(,"rope_parameters":{"full_attention":{"rope_type":"default"}})"),
            at + "'rope_parameters' has no rope_type");
  EXPECT_EQ(why_not(R"(,"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5})"),
            at + "'rope_parameters.partial_rotary_factor' is 0.5, which is not known here");
  EXPECT_EQ(why_not(R"(,"partial_rotary_factor":0.5)"),
            at + "'partial_rotary_factor' is 0.5, which is not known here");
  EXPECT_EQ(why_not(R"(,"rope_interleave":true)"), at + "'rope_interleave' is true, which is not known here");
  EXPECT_EQ(why_not(R"(,"rope_scaling":{"rope_type":"linear"})"),
            at + "'rope_scaling.factor' is missing or no positive number");
  EXPECT_EQ(why_not(R"(,"rope_scaling":{"rope_type":"linear","factor":2,"attention_factor":1.2})"),
            at + "'rope_scaling.attention_factor' is 1.2, which is not known here");
  EXPECT_EQ(why_not(R"(,"rope_scaling":"linear")"), at + "'rope_scaling' is no object");
}

TEST(Rope, SurvivesTheWayToAConfigAndBack) {
  for (const char* more :
       {"", llama_3_1, qwen_yarn, R"(,"rope_scaling":{"rope_type":"linear","factor":2.5})"}) {
    const Shape shape = parse_config(llama_with(more)).value();
    EXPECT_EQ(parse_config(config_json(shape)).value(), shape) << more;
  }
}

}  // namespace
}  // namespace tutti::model
