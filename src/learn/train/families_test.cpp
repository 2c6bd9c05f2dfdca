// Another program, another language, gradients by autograd: what it computes of each family is what the
// trainer is to compute, from files in the form in which such models are published.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "learn/checkpoint/import.hpp"
#include "learn/safetensors/file.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

constexpr double error_max = 1e-5;  // relative, f32 against f64; they differ by about 2e-6

bool has_pytorch() {
  static const bool found = std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") == 0;
  return found;
}

at::Tensor read_tensor(const std::string& path, const std::string& name) {
  const auto file = require(safetensors::File::open(path));
  const safetensors::Entry* const entry = file.find(name);
  if (entry == nullptr) throw Failure(failed("there is no tensor '" + name + "'"));
  at::Tensor values = at::empty(entry->shape, at::kFloat);
  require(file.read(entry->begin,
                    {static_cast<std::byte*>(values.data_ptr()), static_cast<std::size_t>(values.nbytes())}));
  return values;
}

double length_of(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }

class Families : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_pytorch()) GTEST_SKIP() << "python3-torch is not installed";
    std::string name = (std::filesystem::temp_directory_path() / "families_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Lets the other program compute, and reads its model's shape.
  void make(const std::string& name) {
    at::set_num_threads(1);
    at_ = folder_ + "/" + name;
    const std::string command = "OMP_NUM_THREADS=1 /usr/bin/python3 " TUTTI_SOURCE_DIR
                                "/tests/support/torch_families.py " +
                                name + " " + at_;
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::stringstream config;
    config << std::ifstream(at_ + "/config.json").rdbuf();
    const auto shape = model::parse_config(config.str());
    ASSERT_TRUE(shape) << shape.error().text();
    shape_ = *shape;
  }

  void compare(const std::string& name) {
    make(name);
    const auto done = caught([&] { compare_computed(name); });
    EXPECT_TRUE(done.ok()) << name << ": " << done.error().text();
  }

  std::string folder_;
  std::string at_;  // of the case
  model::Shape shape_;

 private:
  void compare_computed(const std::string& name) {
    const at::Tensor tokens = read_tensor(at_ + "/expected.safetensors", "tokens").to(at::kLong);
    const at::Tensor logits = read_tensor(at_ + "/expected.safetensors", "logits");
    const std::int64_t batch = logits.size(0);
    const std::int64_t length = logits.size(1);
    const at::Tensor inputs = tokens.slice(1, 0, length).contiguous().view({-1});
    const at::Tensor targets = tokens.slice(1, 1).contiguous().view({-1});

    Groups groups;
    Transformer model({.setup = Setup::make(shape_, groups, batch, length, at::kCPU), .keeping = {}}, groups);
    const auto weights = require(checkpoint::ForeignWeights::open(at_, shape_));
    const auto source = [&](Kind, const model::Tensor& tensor, const checkpoint::Box& box,
                            std::span<float> floats) { require(weights.read(tensor.name, box, floats)); };
    model.parameters().fill(source, false);
    model.parameters().publish();
    const double scale = logits.abs().max().item<double>();
    for (std::int64_t position = 0; position < length; ++position) {
      const at::Tensor off = model.next_logits(inputs, position) - logits.select(1, position);
      EXPECT_LE(off.abs().max().item<double>() / scale, error_max) << name << ", logits at " << position;
    }
    model.run({{inputs, targets}}, 1.0 / static_cast<double>(batch * length));
    // A step with these betas leaves the gradient as the first moment.
    model.parameters().update({.learning_rate = 0, .beta1 = 0, .clip = 0});
    compare_gradients(name, model);
  }

  void compare_gradients(const std::string& name, Transformer& model) {
    const auto gradients = require(checkpoint::ForeignWeights::open(at_ + "/gradients", shape_));
    std::map<std::string, std::pair<at::Tensor, at::Tensor>> both;  // ours, theirs
    double squares = 0;
    for (const Parameters::Saved& saved : model.parameters().saved()) {
      if (saved.kind != Kind::first_moment) continue;
      at::Tensor theirs = at::empty({saved.box.elements()}, at::kFloat);
      require(gradients.read(saved.tensor->name, saved.box,
                             {theirs.data_ptr<float>(), static_cast<std::size_t>(theirs.numel())}));
      squares += std::pow(length_of(theirs), 2);
      both.try_emplace(saved.tensor->name + " " + saved.box.text(), saved.values.reshape({-1}).clone(),
                       theirs);
    }
    EXPECT_GE(both.size(), static_cast<std::size_t>(shape_.layers)) << "there is something to compare";
    // Some gradients are nothing but rounding, such as that of the keys' bias in gpt2.
    const double least = 0.01 * std::sqrt(squares);
    for (const auto& [what, gradient] : both) {
      const double error =
          length_of(gradient.first - gradient.second) / std::max(length_of(gradient.second), least);
      EXPECT_LE(error, error_max) << name << ", gradient of " << what;
    }
  }
};

TEST_F(Families, Gpt2ComputesWhatPytorchDoes) {
  compare("gpt2");
  compare("gpt2-gelu");
}

TEST_F(Families, LlamaComputesWhatPytorchDoes) {
  compare("llama");
  compare("llama-3.1");
  compare("llama-biases");
  compare("llama-yarn");
}

TEST_F(Families, MistralComputesWhatPytorchDoes) { compare("mistral"); }

TEST_F(Families, Qwen2ComputesWhatPytorchDoes) { compare("qwen2"); }

TEST_F(Families, Qwen3ComputesWhatPytorchDoes) {
  compare("qwen3");
  compare("qwen3-biases");
  compare("qwen3-yarn");
}

TEST_F(Families, MixturesComputeWhatPytorchDoes) {
  compare("qwen3_moe");
  compare("qwen3_moe-every-second");
}

}  // namespace
}  // namespace tutti::train
