#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "base/prng.hpp"
#include "serve/infer/answer.hpp"
#include "serve/infer/ask.hpp"
#include "serve/infer/numbers.hpp"

namespace tutti::serve::infer {
namespace {

const Signature two_inputs{.inputs = {{"x", DataType::fp32, Dimensions{any_size, 2}}, {"m"}}, .outputs = {}};
const Signature any_input{.inputs = {{"x"}}, .outputs = {}};

template <class T>
std::string bytes(std::initializer_list<T> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(T)};
}

std::string problem(const std::string& body, const std::string& length = "",
                    const Signature& signature = any_input) {
  const auto ask = read_ask(body, length, signature);
  return ask ? "" : ask.error().text();
}
std::string problem_of_data(const std::string& type, const std::string& shape, const std::string& data) {
  return problem(R"({"inputs":[{"name":"x","datatype":")" + type + R"(","shape":)" + shape + R"(,"data":)" +
                 data + "}]}");
}
#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Ask, FlatAndNestedAreTheSame) {
  for (const char* data : {"[1,2.5,3,4]", "[[1,2.5],[3,4]]"}) {
    const auto ask = read_ask(std::string(R"({"id":"7","inputs":[
        {"name":"m","shape":[1],"datatype":"INT8","data":[-3]},
        {"name":"x","shape":[2,2],"datatype":"FP32","data":)") +
                                  data + "}]}",
                              "", two_inputs);
    ASSERT_TRUE(ask) << ask.error().text();
    EXPECT_EQ(ask->id, "7");
    ASSERT_EQ(ask->inputs.size(), 2U);
    EXPECT_EQ(ask->inputs[0], (Tensor{"x", DataType::fp32, {2, 2}, bytes<float>({1, 2.5F, 3, 4})}))
        << "in the order of the signature";
    EXPECT_EQ(ask->inputs[1], (Tensor{"m", DataType::int8, {1}, bytes<std::int8_t>({-3})}));
    EXPECT_TRUE(ask->outputs.empty() && !ask->all_binary);
  }
}

TEST(Ask, BinaryDataFollowsTheJsonInItsOrder) {
  const std::string json =
      R"({"inputs":[{"name":"m","shape":[3],"datatype":"BOOL","parameters":{"binary_data_size":3}},
      {"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],
      "outputs":[{"name":"y"},{"name":"z","parameters":{"binary_data":false}}],
      "parameters":{"binary_data_output":true}})";
  const std::string flags("\0\1\7", 3);
  const std::string numbers = bytes<float>({5, -6});
  const auto ask = read_ask(json + flags + numbers, std::to_string(json.size()), two_inputs);
  ASSERT_TRUE(ask) << ask.error().text();
  EXPECT_EQ(ask->inputs[0].bytes, numbers);
  EXPECT_EQ(ask->inputs[1].bytes, std::string("\0\1\1", 3)) << "whatever is not 0 is true";
  ASSERT_EQ(ask->outputs.size(), 2U);
  EXPECT_TRUE(ask->outputs[0].is_binary);
  EXPECT_FALSE(ask->outputs[1].is_binary);
}

TEST(Ask, LengthsThatLieAreRefused) {
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}]})";
  const std::string length = std::to_string(json.size());
  EXPECT_EQ(problem(json + "12345678", length), "");
  EXPECT_SAYS(problem(json + "1234567", length), "fewer bytes");
  EXPECT_SAYS(problem(json + "123456789", length), "1 bytes behind the JSON");
  EXPECT_SAYS(problem(json + "12345678"), "byte") << "without the header all of it is JSON";
  for (const char* wrong : {"-1", "x", "12x", " 12", "99999999999999999999999", "100000"})
    EXPECT_SAYS(problem(json + "12345678", wrong), "Inference-Header-Content-Length");
  const auto sized = [](const std::string& shape, const std::string& size) {
    const std::string text = R"({"inputs":[{"name":"x","shape":)" + shape +
                             R"(,"datatype":"FP32","parameters":{"binary_data_size":)" + size + "}}]}";
    return problem(text + "12345678", std::to_string(text.size()));
  };
  EXPECT_SAYS(sized("[3]", "8"), "binary_data_size is not the 12 bytes");
  EXPECT_SAYS(sized("[2]", "-8"), "binary_data_size");
  EXPECT_SAYS(sized("[2]", "\"8\""), "binary_data_size");
  EXPECT_SAYS(sized("[4611686018427387904,4]", "0"), "too large");
}

TEST(Ask, NumbersMustBeOfTheirType) {
  EXPECT_EQ(problem_of_data("INT8", "[2]", "[-128,127]"), "");
  EXPECT_SAYS(problem_of_data("INT8", "[1]", "[128]"), "no INT8");
  EXPECT_SAYS(problem_of_data("UINT8", "[1]", "[-1]"), "no UINT8");
  EXPECT_SAYS(problem_of_data("INT32", "[1]", "[1.5]"), "no INT32");
  EXPECT_SAYS(problem_of_data("INT64", "[1]", "[9223372036854775808]"), "no INT64");
  EXPECT_SAYS(problem_of_data("BOOL", "[1]", "[2]"), "no BOOL");
  EXPECT_EQ(problem_of_data("BOOL", "[3]", "[true,0,1]"), "");
  EXPECT_SAYS(problem_of_data("FP32", "[1]", "[\"1\"]"), "no FP32");
  EXPECT_SAYS(problem_of_data("FP32", "[1]", "[1e39]"), "no FP32");
  EXPECT_SAYS(problem_of_data("FP16", "[1]", "[70000]"), "no FP16");
  EXPECT_EQ(
      read_ask(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[null]}]})", "", any_input)
          .error()
          .remedy(),
      "a NaN or an infinity travels as binary data");
  EXPECT_SAYS(problem_of_data("BYTES", "[1]", "[\"a\"]"), "BYTES");
  EXPECT_SAYS(problem_of_data("UINT64", "[1]", "[1]"), "UINT64");
}

TEST(Ask, ShapesMustFitTheirData) {
  EXPECT_EQ(problem_of_data("FP32", "[]", "[1]"), "");
  EXPECT_EQ(problem_of_data("FP32", "[0,3]", "[]"), "");
  EXPECT_SAYS(problem_of_data("FP32", "[3]", "[1,2]"), "2 numbers");
  EXPECT_SAYS(problem_of_data("FP32", "[2,2]", "[[1,2],[3]]"), "shape");
  EXPECT_SAYS(problem_of_data("FP32", "[2,2]", "[[1,2],3]"), "shape");
  EXPECT_SAYS(problem_of_data("FP32", "[2]", "[[1],[2]]"), "no FP32");
  EXPECT_SAYS(problem_of_data("FP32", "[-1]", "[1]"), "no size");
  EXPECT_SAYS(problem_of_data("FP32", "[1.5]", "[1]"), "no size");
  EXPECT_SAYS(problem_of_data("FP32", "3", "[1]"), "shape");
  EXPECT_SAYS(problem_of_data("FP32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[1]"), "shape");
  EXPECT_SAYS(problem_of_data("FP32", "[100000000,100000000]", "[1]"), "too large");
  EXPECT_SAYS(problem_of_data("FP32", "[1]", "1"), "list");
}

TEST(Ask, WhatIsMissingWrongOrTooMuchIsNamed) {
  EXPECT_NE(problem(""), "");
  EXPECT_NE(problem("{"), "");
  EXPECT_SAYS(problem("[]"), "object");
  EXPECT_SAYS(problem("{}"), "inputs");
  EXPECT_SAYS(problem(R"({"inputs":[]})"), "x : is missing");
  const std::string one = R"({"name":"x","datatype":"FP32","shape":[1],"data":[1]})";
  EXPECT_SAYS(problem(R"({"inputs":[)" + one + "," + one + "]}"), "twice");
  EXPECT_SAYS(problem(R"({"inputs":[{"name":"y\u001b","datatype":"FP32","shape":[1],"data":[1]}]})"),
              "no input 'y\\x1b'; it has x");
  EXPECT_SAYS(problem(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]})"), "either data");
  EXPECT_SAYS(problem(R"({"id":5,"inputs":[)" + one + "]}"), "id");
  EXPECT_SAYS(problem(R"({"parameters":{"sequence_id":5},"inputs":[)" + one + "]}"), "sequence_id");
  EXPECT_SAYS(problem(R"({"inputs":[)" + one + R"(],"outputs":[{"name":"y"},{"name":"y"}]})"), "twice");
  EXPECT_SAYS(
      problem(R"({"inputs":[)" + one + R"(],"outputs":[{"name":"y","parameters":{"classification":3}}]})"),
      "classification");
  std::string many = R"({"inputs":[)";
  for (std::size_t nth = 0; nth <= tensors_max; ++nth) many += (nth > 0 ? "," : "") + one;
  EXPECT_SAYS(problem(many + "]}"), "at most 64");
  EXPECT_SAYS(
      problem(R"({"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]})", "", two_inputs),
      "must have [-1,2]");
  std::string long_list = R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[2000000],"data":[0)";
  for (int nth = 1; nth < 2'000'000; ++nth) long_list += ",0";
  EXPECT_NE(problem(long_list + "]}]}"), "") << "a number of JSON takes far more room than its text";
}

TEST(Answer, IsWhatWasAskedFor) {
  const std::vector<Tensor> outputs{{"y", DataType::fp32, {1, 2}, bytes<float>({0.1F, -3})},
                                    {"z", DataType::int64, {1}, bytes<std::int64_t>({1LL << 60})}};
  const auto all = write_answer("m", "a\"b", {}, false, outputs);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->bytes, R"({"model_name":"m","model_version":"1","id":"a\"b","outputs":[)"
                        R"({"name":"y","datatype":"FP32","shape":[1,2],"data":[0.1,-3]},)"
                        R"({"name":"z","datatype":"INT64","shape":[1],"data":[1152921504606846976]}]})");
  EXPECT_EQ(all->json_bytes, all->bytes.size());
  const auto mixed = write_answer("m", "", {{"z", true}, {"y", false}}, false, outputs);
  ASSERT_TRUE(mixed);
  EXPECT_EQ(mixed->bytes.substr(mixed->json_bytes), outputs[1].bytes);
  const auto root = json::parse(std::string_view(mixed->bytes).substr(0, mixed->json_bytes));
  ASSERT_TRUE(root);
  EXPECT_EQ(*root->find("outputs")->list()->front().find("parameters")->find("binary_data_size"), 8);
  EXPECT_FALSE(write_answer("m", "", {{"nothing", false}}, false, outputs));
}

TEST(Answer, WhatJsonCannotSayIsNull) {
  const float nan = std::nanf("");
  const std::vector<Tensor> outputs{
      {"y", DataType::fp32, {3}, bytes<float>({nan, -HUGE_VALF, 1.5F})},
      {"h", DataType::fp16, {2}, bytes<std::uint16_t>({half_of(HUGE_VALF), half_of(-0.25F)})},
      {"b", DataType::boolean, {2}, std::string("\0\1", 2)}};
  const auto written = write_answer("m", "", {}, false, outputs);
  ASSERT_TRUE(written);
  EXPECT_SAYS(written->bytes, "[null,null,1.5]");
  EXPECT_SAYS(written->bytes, "[null,-0.25]");
  EXPECT_SAYS(written->bytes, "[false,true]");
  const auto exact = write_answer("m", "", {}, true, outputs);
  EXPECT_EQ(exact->bytes.substr(exact->json_bytes, 12), outputs[0].bytes) << "binary data keeps them";
}

TEST(Answer, MoreNumbersThanJsonIsGoodForAreRefused) {
  const std::vector<Tensor> outputs{{"y", DataType::uint8, {5'000'000}, std::string(5'000'000, '\0')}};
  EXPECT_FALSE(write_answer("m", "", {}, false, outputs));
  EXPECT_TRUE(write_answer("m", "", {}, true, outputs));
}

TEST(Answer, CardsAndErrorsAreJson) {
  const Card card{"m", {.inputs = {{"x", DataType::bf16, Dimensions{-1, 4}}, {"any"}}, .outputs = {}}};
  EXPECT_EQ(model_text(card), R"({"inputs":[{"datatype":"BF16","name":"x","shape":[-1,4]},)"
                              R"({"datatype":"ANY","name":"any","shape":[-1]}],"name":"m","outputs":[],)"
                              R"("platform":"pytorch_torchscript","versions":["1"]})"
                              "\n");
  EXPECT_EQ(error_text(invalid("is \"wrong\"").within("x").remedy("do better")),
            "{\"error\":\"x: is \\\"wrong\\\"; do better\"}\n");
}

// Every half there is, and what lies between two of them.
TEST(Numbers, HalvesAreRoundedAsTheyShould) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float number = from_half(half);
    if (std::isnan(number)) {
      EXPECT_TRUE(std::isnan(from_half(half_of(number))));
      continue;
    }
    EXPECT_EQ(half_of(number), half) << bits;
    if ((bits & 0x7FFFU) >= 0x7BFFU) continue;
    const float next = from_half(static_cast<std::uint16_t>(bits + 1));
    const float middle = (number + next) / 2;
    EXPECT_EQ(half_of(middle), bits % 2 == 0 ? half : half + 1) << "a tie goes to the even one: " << bits;
    EXPECT_EQ(half_of(std::nextafterf(middle, number)), half);
    EXPECT_EQ(half_of(std::nextafterf(middle, next)), half + 1);
  }
  EXPECT_EQ(from_half(half_of(65'519.0F)), 65'504.0F);
  EXPECT_TRUE(std::isinf(from_half(half_of(65'520.0F))));
  EXPECT_EQ(from_bfloat(bfloat_of(1.0F)), 1.0F);
  EXPECT_EQ(bfloat_of(std::nextafterf(1.00390625F, 2)), 0x3F81) << "above the middle";
  EXPECT_EQ(bfloat_of(1.00390625F), 0x3F80) << "a tie goes to the even one";
}

// Bytes of which nothing is right: each is read or refused, and none does harm.
TEST(Ask, AnyBytesAreReadOrRefused) {
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[3,4]]}],"outputs":[{"name":"y"}]})";
  Prng random(9);
  for (int round = 0; round < 20'000; ++round) {
    std::string body = json;
    for (int change = 0; change < 3; ++change)
      body[random.below(body.size())] = static_cast<char>(random.below(256));
    static_cast<void>(read_ask(body, "", any_input).ok());
    static_cast<void>(read_ask(body, std::to_string(random.below(body.size() + 9)), any_input).ok());
  }
}

}  // namespace
}  // namespace tutti::serve::infer
