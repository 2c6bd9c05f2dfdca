#include "serve/load/script.hpp"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tutti::serve {
namespace {

TEST(ScriptOptions, AreReadAsTheyWereWritten) {
  const ScriptOptions options{
      "cuda", 3, 32, {.inputs = {{"x", DataType::fp16, Dimensions{-1, 4}}}, .outputs = {}}};
  const auto read = read_script_options(write_script_options(options));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->device, "cuda");
  EXPECT_EQ(read->instances, 3);
  EXPECT_EQ(read->rows_max, 32);
  EXPECT_EQ(read->signature, options.signature);
  for (const char* wrong : {"", "{}", R"({"device":"abacus","instances":1,"rows_max":1,"signature":{}})",
                            R"({"device":"cpu","instances":0,"rows_max":1,"signature":{}})",
                            R"({"device":"cpu","instances":1,"rows_max":9999999,"signature":{}})",
                            R"({"device":"cpu","instances":1,"rows_max":1,"signature":[]})"})
    EXPECT_FALSE(read_script_options(wrong)) << wrong;
}

TEST(ScriptSignature, StandsBesideTheModel) {
  const std::string path = testing::TempDir() + "script_test.pt";
  const std::string beside = testing::TempDir() + "script_test.json";
  std::filesystem::remove(beside);
  EXPECT_EQ(*read_script_signature(path), Signature{}) << "nothing is said";
  std::ofstream(beside) << R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}]})";
  EXPECT_EQ(read_script_signature(path)->inputs.front().name, "x");
  std::ofstream(beside) << R"({"inputs":[{"name":"x","datatype":"FLOAT"}]})";
  const auto wrong = read_script_signature(path);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text().find("script_test.json"), std::string::npos) << wrong.error().text();
  std::filesystem::remove(beside);
  EXPECT_EQ(script_name("/models/mlp.pt"), "mlp");
  EXPECT_EQ(script_name("mlp"), "mlp");
}

}  // namespace
}  // namespace tutti::serve
