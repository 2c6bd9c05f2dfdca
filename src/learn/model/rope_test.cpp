#include "learn/model/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>

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
  EXPECT_EQ(why_not(R"(,"rope_scaling":{"rope_type":"yarn","factor":4})"),
            at + "'rope_scaling' is of the type \"yarn\", and only default, linear and llama3 are known");
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
  for (const char* more : {"", llama_3_1, R"(,"rope_scaling":{"rope_type":"linear","factor":2.5})"}) {
    const Shape shape = parse_config(llama_with(more)).value();
    EXPECT_EQ(parse_config(config_json(shape)).value(), shape) << more;
  }
}

}  // namespace
}  // namespace tutti::model
