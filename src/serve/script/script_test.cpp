// Real TorchScript archives: each test writes the one that it needs.
#include "serve/script/script.hpp"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <torch/script.h>

#include "serve/load/archive.hpp"

namespace tutti::serve {
namespace {

std::string bytes_of_floats(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}
std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> numbers(tensor.bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
  return numbers;
}
Tensor floats(Dimensions shape, const std::vector<float>& numbers) {
  return {"x", DataType::fp32, std::move(shape), bytes_of_floats(numbers)};
}

class ScriptTest : public testing::Test {
 protected:
  // With a 2x2 matrix w = [[1,2],[3,4]] of its own.
  void write(const std::string& source) const {
    torch::jit::Module module("m");
    module.register_parameter("w", torch::tensor({1.0F, 2.0F, 3.0F, 4.0F}).reshape({2, 2}), false);
    module.define(source);
    module.save(path);
  }
  Result<remote::Hosted> load(const ScriptOptions& options = {}) const { return load_script(path, options); }
  static ScriptOptions batched(Dimensions shape, DataType type = DataType::fp32) {
    return {.rows_max = 4, .signature = {.inputs = {{"x", type, std::move(shape)}}, .outputs = {}}};
  }
  void TearDown() override { std::filesystem::remove(path); }

  const std::string path = testing::TempDir() + "script_test_" + std::to_string(::getpid()) + ".pt";
};

const char* const product = "def forward(self, x):\n  return torch.matmul(x, self.w)\n";

TEST_F(ScriptTest, ComputesWhatTheProgramSays) {
  write(product);
  EXPECT_TRUE(check_script(path)) << "the archive is recognized without libtorch";
  const auto hosted = load();
  ASSERT_TRUE(hosted) << hosted.error().text();
  EXPECT_EQ(hosted->card.signature.inputs, (std::vector<TensorSpec>{{.name = "x"}}))
      << "the name of the argument";
  ASSERT_EQ(hosted->lanes.size(), 1U);
  const auto made = hosted->lanes[0]({floats({1, 2}, {5, 6})});
  ASSERT_TRUE(made) << made.error().text();
  ASSERT_EQ(made->size(), 1U);
  EXPECT_EQ(made->front().name, "output_0");
  EXPECT_EQ(made->front().shape, (Dimensions{1, 2}));
  EXPECT_EQ(floats_of(made->front()), (std::vector<float>{23, 34}));
}

TEST_F(ScriptTest, ItsVersionIsThatOfItsBytes) {
  write(product);
  const auto first = load();
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_FALSE(first->card.version.empty());
  const std::string copy = path + ".copy.pt";
  std::filesystem::copy_file(path, copy);
  std::filesystem::rename(copy, path);
  EXPECT_EQ(load()->card.version, first->card.version) << "the same bytes in another file";
  write("def forward(self, x):\n  return torch.matmul(x, self.w) + 1\n");
  EXPECT_NE(load()->card.version, first->card.version);
}

TEST_F(ScriptTest, WarmsUpAndTellsItsOutputs) {
  write(product);
  const auto hosted = load(batched({-1, 2}));
  ASSERT_TRUE(hosted) << hosted.error().text();
  EXPECT_EQ(hosted->card.signature.outputs,
            (std::vector<TensorSpec>{{"output_0", DataType::fp32, Dimensions{-1, 2}}}));
  EXPECT_NE(hosted->card.about.find("warm"), std::string::npos) << hosted->card.about;
}

TEST_F(ScriptTest, InstancesComputeAtOnceAndAlike) {
  write(product);
  ScriptOptions options = batched({-1, 2});
  options.instances = 3;
  const auto hosted = load(options);
  ASSERT_TRUE(hosted) << hosted.error().text();
  ASSERT_EQ(hosted->lanes.size(), 3U);
  std::vector<std::thread> threads;
  for (const remote::Lane& lane : hosted->lanes) {
    threads.emplace_back([&lane] {
      for (int nth = 0; nth < 50; ++nth) {
        const auto number = static_cast<float>(nth);
        const auto made = lane({floats({2, 2}, {number, 0, 0, number})});
        ASSERT_TRUE(made);
        EXPECT_EQ(floats_of(made->front()), (std::vector<float>{number, 2 * number, 3 * number, 4 * number}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ScriptTest, EachTypeTravels) {
  write("def forward(self, x):\n  return x\n");
  const auto hosted = load();
  ASSERT_TRUE(hosted) << hosted.error().text();
  for (std::size_t at = 0; at < data_types; ++at) {
    const auto type = static_cast<DataType>(at);
    std::string bytes(2 * bytes_of(type), '\0');
    bytes.front() = 1;
    const Tensor given{"x", type, {2, 1}, bytes};
    const auto made = hosted->lanes[0]({given});
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_EQ(made->front().type, type);
    EXPECT_EQ(made->front().bytes, bytes);
  }
  const auto none = hosted->lanes[0]({{"x", DataType::fp32, {0, 3}, ""}});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->front().shape, (Dimensions{0, 3}));
}

TEST_F(ScriptTest, TuplesListsAndDictionariesHaveNames) {
  write("def forward(self, x):\n  return (x, x + 1)\n");
  EXPECT_EQ((*load()->lanes[0]({floats({1}, {5})}))[1].name, "output_1");
  ScriptOptions named;
  named.signature.outputs = {{"a"}, {"b"}};
  EXPECT_EQ((*load(named)->lanes[0]({floats({1}, {5})}))[1].name, "b");
  named.signature.outputs = {{"a"}};
  EXPECT_FALSE(load(named)->lanes[0]({floats({1}, {5})})) << "there are two";
  write("def forward(self, x):\n  return [x, x]\n");
  EXPECT_EQ(load()->lanes[0]({floats({1}, {5})})->size(), 2U);
  write("def forward(self, x):\n  return {\"sum\": x + x, \"same\": x}\n");
  const auto made = load()->lanes[0]({floats({1}, {5})});
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ((*made)[0].name, "sum");
  EXPECT_EQ(floats_of((*made)[0]), std::vector<float>{10});
  write("def forward(self, x):\n  return 5\n");
  EXPECT_FALSE(load()->lanes[0]({floats({1}, {5})}));
}

TEST_F(ScriptTest, WhatItCannotComputeIsItsErrorAndNotItsEnd) {
  write(product);
  const auto hosted = load();
  const auto wrong = hosted->lanes[0]({floats({1, 3}, {1, 2, 3})});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), ErrorCode::invalid);
  EXPECT_NE(wrong.error().text().find("mat1 and mat2"), std::string::npos) << wrong.error().text();
  EXPECT_EQ(wrong.error().text().find("HERE"), std::string::npos) << "no trace: " << wrong.error().text();
  EXPECT_FALSE(hosted->lanes[0]({{"x", DataType::int64, {1, 2}, std::string(16, '\0')}}));
  EXPECT_FALSE(hosted->lanes[0]({}));
  EXPECT_TRUE(hosted->lanes[0]({floats({1, 2}, {1, 2})}));
  write("def forward(self, x):\n  return x.to_sparse()\n");
  const auto sparse = load()->lanes[0]({floats({1}, {1})});
  ASSERT_FALSE(sparse);
  EXPECT_NE(sparse.error().text().find("is sparse"), std::string::npos) << sparse.error().text();
  write("def forward(self, x):\n  return torch.zeros([1 << 55])\n");
  EXPECT_FALSE(load()->lanes[0]({floats({1}, {1})})) << "more than there is";
}

TEST_F(ScriptTest, WhatCannotBeServedIsSaidAtTheStart) {
  const auto problem = [&](const ScriptOptions& options) {
    const auto hosted = load(options);
    return hosted ? std::string() : hosted.error().text();
  };
  const auto expect = [&](const ScriptOptions& options, const std::string& part) {
    EXPECT_NE(problem(options).find(part), std::string::npos) << problem(options);
  };
  write("def forward(self, x):\n  return x.sum()\n");
  expect(batched({-1, 2}), "not a row for each");
  write(product);
  expect(batched({-1, 3}), "zeros of the shapes that the signature names");
  EXPECT_EQ(problem(batched({-1, -1})), "") << "sizes that were guessed prove nothing";
  ScriptOptions two = batched({-1, 2});
  two.signature.inputs.push_back({.name = "y"});
  expect(two, "more inputs than forward() takes");
  write("def forward(self, x, n: int):\n  return x + n\n");
  expect({}, "'n' of the type int");
  write("def forward(self, x, y, n: int = 3):\n  return x + n\n");
  EXPECT_EQ(load()->card.signature.inputs.size(), 2U) << "what has a default is not asked for";
  expect(batched({-1, 2}), "also takes 'y'");
  write("def other(self, x):\n  return x\n");
  expect({}, "no forward()");
  std::ofstream(path, std::ios::binary) << "PK\3\4 and nothing that follows from it";
  expect({}, "libtorch cannot load it");
  std::filesystem::remove(path);
  expect({}, "libtorch cannot load it");
}

}  // namespace
}  // namespace tutti::serve
