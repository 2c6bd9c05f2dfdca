#include "learn/safetensors/types.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::safetensors {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::uint16_t narrowed(float number, Type type) {
  std::uint16_t bits = 0;
  from_floats(std::span(&number, 1), type, std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

float widened(std::uint16_t bits, Type type) {
  float number = 0;
  to_floats(type, std::as_bytes(std::span(&bits, 1)), std::span(&number, 1));
  return number;
}

TEST(Types, HaveTheNamesAndSizesOfTheFormat) {
  const std::vector<std::pair<std::string, std::size_t>> published{
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  for (const auto& [name, size] : published) {
    const auto type = parse_type(name);
    ASSERT_TRUE(type) << name;
    EXPECT_EQ(name_of(*type), name);
    EXPECT_EQ(size_of(*type), size);
  }
  EXPECT_FALSE(parse_type("f32"));
  EXPECT_FALSE(parse_type("F8_E4M3"));
  EXPECT_FALSE(parse_type(""));
}

TEST(Types, BytesOfAShapeNeverOverflow) {
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(bytes_of(Type::f32, {}), 4U) << "a scalar";
  EXPECT_EQ(bytes_of(Type::bf16, std::vector<std::int64_t>{3, 5}), 30U);
  EXPECT_EQ(bytes_of(Type::f32, std::vector<std::int64_t>{huge, huge}), std::nullopt);
  EXPECT_EQ(bytes_of(Type::f32, std::vector<std::int64_t>{huge, huge, 0}), 0U);
  EXPECT_EQ(bytes_of(Type::f32, std::vector<std::int64_t>{2, -1}), std::nullopt);
}

TEST(Types, BrainFloatsRoundToTheNearestAndTiesToEven) {
  EXPECT_EQ(narrowed(1.0F, Type::bf16), 0x3f80);
  EXPECT_EQ(narrowed(1.0F + 0x1p-8F, Type::bf16), 0x3f80) << "half way: down to the even one";
  EXPECT_EQ(narrowed(1.0F + 0x1p-8F + 0x1p-20F, Type::bf16), 0x3f81) << "more than half way: up";
  EXPECT_EQ(narrowed(1.0F + 0x1p-7F + 0x1p-8F, Type::bf16), 0x3f82) << "half way: up to the even one";
  EXPECT_EQ(narrowed(std::numeric_limits<float>::max(), Type::bf16), 0x7f80) << "rounds to infinity";
  EXPECT_EQ(narrowed(-infinity, Type::bf16), 0xff80);
  EXPECT_EQ(narrowed(-0.0F, Type::bf16), 0x8000);
  const float low_nan = std::bit_cast<float>(0x7f800001U);
  EXPECT_TRUE(std::isnan(widened(narrowed(low_nan, Type::bf16), Type::bf16)));
}

TEST(Types, HalvesRoundToTheNearestAndTiesToEven) {
  EXPECT_EQ(narrowed(1.0F, Type::f16), 0x3c00);
  EXPECT_EQ(narrowed(1.0F + 0x1p-11F, Type::f16), 0x3c00);
  EXPECT_EQ(narrowed(1.0F + 0x1p-10F + 0x1p-11F, Type::f16), 0x3c02);
  EXPECT_EQ(narrowed(65504.0F, Type::f16), 0x7bff) << "the largest";
  EXPECT_EQ(narrowed(65519.0F, Type::f16), 0x7bff);
  EXPECT_EQ(narrowed(65520.0F, Type::f16), 0x7c00) << "rounds to infinity";
  EXPECT_EQ(narrowed(0x1p-24F, Type::f16), 0x0001) << "the smallest";
  EXPECT_EQ(narrowed(0x1p-25F, Type::f16), 0x0000) << "half of it: to the even one";
  EXPECT_EQ(narrowed(0x1.8p-24F, Type::f16), 0x0002);
  EXPECT_EQ(narrowed(0x1p-14F, Type::f16), 0x0400) << "the smallest normal one";
  EXPECT_EQ(narrowed(-2.0F, Type::f16), 0xc000);
  EXPECT_TRUE(std::isnan(widened(narrowed(std::nanf(""), Type::f16), Type::f16)));
}

TEST(Types, EveryNarrowNumberSurvivesTheWayToAFloatAndBack) {
  for (const Type type : {Type::f16, Type::bf16}) {
    for (std::uint32_t at = 0; at <= 0xffff; ++at) {
      const auto bits = static_cast<std::uint16_t>(at);
      const float number = widened(bits, type);
      if (std::isnan(number)) continue;
      ASSERT_EQ(narrowed(number, type), bits) << name_of(type);
    }
  }
  EXPECT_EQ(widened(0x3555, Type::f16), 0x1.554p-2F);
  EXPECT_EQ(widened(0xfc00, Type::f16), -infinity);
}

TEST(Types, FloatsAreCopied) {
  const std::vector<float> numbers{1.5F, -0.0F, infinity};
  std::vector<std::byte> bytes(12);
  from_floats(numbers, Type::f32, bytes);
  std::vector<float> again(3);
  to_floats(Type::f32, bytes, again);
  EXPECT_EQ(numbers, again);
  EXPECT_FALSE(is_weight(Type::f64));
  EXPECT_FALSE(is_weight(Type::i32));
}

}  // namespace
}  // namespace tutti::safetensors
