#include "serve/tensor/tensor.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "serve/tensor/signature.hpp"

namespace tutti::serve {
namespace {

Tensor bytes_tensor(const std::string& name, Dimensions shape, std::string bytes) {
  return {name, DataType::uint8, std::move(shape), std::move(bytes)};
}

TEST(Tensor, TypesHaveTheNamesOfTheProtocol) {
  for (std::size_t at = 0; at < data_types; ++at) {
    const auto type = static_cast<DataType>(at);
    EXPECT_EQ(parse_data_type(name_of(type)), type);
  }
  EXPECT_EQ(name_of(DataType::bf16), "BF16");
  EXPECT_EQ(bytes_of(DataType::fp64), 8U);
  EXPECT_FALSE(parse_data_type("BYTES"));
  EXPECT_FALSE(parse_data_type("fp32"));
}

TEST(Tensor, ItsSizeIsNeverMoreThanIsBearable) {
  EXPECT_EQ(*bytes_of(DataType::fp32, {2, 3}), 24U);
  EXPECT_EQ(*bytes_of(DataType::fp32, {}), 4U) << "a number";
  EXPECT_EQ(*bytes_of(DataType::fp32, {0, 5}), 0U);
  EXPECT_FALSE(bytes_of(DataType::fp32, {-1, 5}));
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE(bytes_of(DataType::uint8, {most, most}));
  EXPECT_FALSE(bytes_of(DataType::uint8, {1 << 20, 1 << 20, 1 << 24})) << "the product is 0 in 64 bits";
  EXPECT_FALSE(bytes_of(DataType::uint8, {0, most}));
  EXPECT_FALSE(bytes_of(DataType::uint8, Dimensions(dimensions_max + 1, 1)));
  EXPECT_TRUE(bytes_of(DataType::uint8, Dimensions(dimensions_max, 1)));
}

TEST(Tensor, RowsAreJoinedAndSplitAgain) {
  const std::vector<Tensor> one{bytes_tensor("a", {1, 2}, "ab"), bytes_tensor("b", {1}, "x")};
  const std::vector<Tensor> two{bytes_tensor("a", {2, 2}, "cdef"), bytes_tensor("b", {2}, "yz")};
  EXPECT_EQ(kind_of(one), kind_of(two));
  const auto joined = join_rows({&one, &two});
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[0], bytes_tensor("a", {3, 2}, "abcdef"));
  EXPECT_EQ(joined[1], bytes_tensor("b", {3}, "xyz"));
  const auto parts = split_rows(joined, {1, 2});
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[0], one);
  EXPECT_EQ((*parts)[1], two);
  EXPECT_FALSE(split_rows(joined, {1, 3}));
  EXPECT_FALSE(split_rows({bytes_tensor("mean", {}, "m")}, {1, 2})) << "no row for each";
}

TEST(Tensor, WhatDiffersInMoreThanItsRowsIsOfAnotherKind) {
  const std::vector<Tensor> base{bytes_tensor("a", {1, 2}, "ab")};
  EXPECT_NE(kind_of(base), kind_of({bytes_tensor("a", {1, 3}, "abc")}));
  EXPECT_NE(kind_of(base), kind_of({bytes_tensor("a", {1, 2, 1}, "ab")}));
  EXPECT_NE(kind_of(base), kind_of({{"a", DataType::int8, {1, 2}, "ab"}}));
  // Sizes that could be read in two ways.
  EXPECT_NE(kind_of({bytes_tensor("a", {1, 1, 11}, "")}), kind_of({bytes_tensor("a", {1, 11, 1}, "")}));
}

TEST(Tensor, RowsAreCountedWhereTheyAgree) {
  EXPECT_EQ(*rows_of({bytes_tensor("a", {3, 2}, ""), bytes_tensor("b", {3}, "")}), 3);
  EXPECT_FALSE(rows_of({bytes_tensor("a", {3}, ""), bytes_tensor("b", {2}, "")}));
  EXPECT_FALSE(rows_of({bytes_tensor("a", {}, "")}));
  EXPECT_FALSE(rows_of({bytes_tensor("a", {0, 2}, "")}));
  EXPECT_FALSE(rows_of({}));
}

TEST(Signature, IsWrittenAsItIsRead) {
  const auto text = json::parse(
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]},{"name":"any"}],
          "outputs":[{"name":"y","datatype":"INT64"}],"comment":"is passed over"})");
  const auto signature = read_signature(*text);
  ASSERT_TRUE(signature) << signature.error().text();
  EXPECT_EQ(signature->inputs[0], (TensorSpec{"x", DataType::fp32, Dimensions{-1, 4}}));
  EXPECT_EQ(signature->inputs[1], TensorSpec{"any"});
  EXPECT_EQ(*read_signature(write_signature(*signature)), *signature);
}

TEST(Signature, WhatIsWrongIsNamed) {
  const auto problem = [](const char* text) {
    const auto signature = read_signature(*json::parse(text));
    return signature ? std::string() : signature.error().text();
  };
  EXPECT_NE(problem(R"([])"), "");
  EXPECT_NE(problem(R"({"inputs":{}})").find("inputs"), std::string::npos);
  EXPECT_NE(problem(R"({"inputs":[{"name":""}]})").find("name"), std::string::npos);
  EXPECT_NE(problem(R"({"inputs":[{"name":"x\u001b"}]})").find("name"), std::string::npos);
  EXPECT_NE(problem(R"({"inputs":[{"name":"x","datatype":"BYTES"}]})").find("datatype"), std::string::npos);
  EXPECT_NE(problem(R"({"inputs":[{"name":"x","shape":[-2]}]})").find("shape"), std::string::npos);
  EXPECT_NE(problem(R"({"inputs":[{"name":"x","shape":[1.5]}]})").find("shape"), std::string::npos);
  EXPECT_NE(problem(R"({"outputs":[{"name":"x"},{"name":"x"}]})").find("twice"), std::string::npos);
}

TEST(Signature, TensorsAreComparedWithIt) {
  const TensorSpec spec{"x", DataType::uint8, Dimensions{-1, 2}};
  EXPECT_TRUE(check(bytes_tensor("x", {5, 2}, ""), spec));
  EXPECT_FALSE(check(bytes_tensor("x", {5, 3}, ""), spec));
  EXPECT_FALSE(check(bytes_tensor("x", {5}, ""), spec));
  EXPECT_FALSE(check({"x", DataType::int8, {5, 2}, ""}, spec));
  EXPECT_TRUE(check({"x", DataType::int8, {7}, ""}, {"x"}));
}

}  // namespace
}  // namespace tutti::serve
