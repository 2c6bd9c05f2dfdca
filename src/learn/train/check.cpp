#include "learn/train/check.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "learn/train/check_functions.hpp"
#include "learn/train/failure.hpp"
#include "learn/train/initial_values.hpp"
#include "learn/train/transformer.hpp"

namespace tutti::train {
namespace {

constexpr std::uint64_t seed = 17;

// Relative to the largest element of a tensor, or to the length of a gradient.
double allowed_error(at::ScalarType type) { return type == at::kBFloat16 ? 3e-2 : 2e-4; }

// ---- whole models

constexpr std::int64_t length = 64;
constexpr std::int64_t batch = 4;
constexpr int microbatches = 2;

model::Shape small(const std::string& family) {
  const bool gpt2 = family == "gpt2";
  auto shape = model::make_shape(family, {.vocabulary = 613,  // no multiple of anything
                                          .layers = 2,
                                          .hidden = 128,
                                          .heads = 4,
                                          .kv_heads = gpt2 ? 4 : 2,
                                          .head_size = family == "qwen3" ? 48 : 0,
                                          .intermediate = gpt2 ? 512 : 320,
                                          .context = length});
  if (family == "mistral") shape.window = length / 4;
  if (family == "qwen3_moe") shape.experts = {.count = 8, .chosen = 2, .intermediate = 96};
  return shape;
}

// The gradient of each tensor, f32 on the host, and the loss as the last one.
std::vector<at::Tensor> gradients_of(const model::Shape& shape, at::Device device, at::ScalarType type) {
  Groups groups;
  Transformer model({.setup = Setup::make(shape, groups, batch, length, device),
                     .keeping = {.device = device, .type = type, .microbatches = microbatches}},
                    groups);
  model.parameters().fill(initial_values(seed), false);
  model.parameters().publish();
  at::manual_seed(seed);
  std::vector<Microbatch> data;
  for (int i = 0; i < microbatches; ++i) {
    const at::Tensor tokens = at::randint(0, shape.vocabulary, {2, batch * length}, at::kLong).to(device);
    data.push_back({tokens[0].contiguous(), tokens[1].contiguous()});
  }
  const double loss = model.run(data, 1.0 / (microbatches * batch * length));
  // A step with these betas leaves the gradient as the first moment.
  model.parameters().update({.learning_rate = 0, .beta1 = 0, .clip = 0});
  std::vector<at::Tensor> all;
  for (const Parameters::Saved& saved : model.parameters().saved()) {
    if (saved.kind == Kind::first_moment) all.push_back(saved.values.to(at::kCPU).clone());
  }
  all.push_back(at::full({1}, loss, at::kFloat));
  return all;
}

double length_of(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }

double model_error(const model::Shape& shape, at::Device device, at::ScalarType type) {
  const auto expected = gradients_of(shape, at::kCPU, at::kFloat);
  const auto got = gradients_of(shape, device, type);
  double squares = 0;
  for (std::size_t i = 0; i + 1 < expected.size(); ++i) squares += std::pow(length_of(expected[i]), 2);
  // Some gradients are nothing but rounding, such as that of the keys' bias: they count as what they are.
  const double least = 0.01 * std::sqrt(squares);
  Largest error;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error.note(length_of(got.at(i) - expected[i]) / std::max(length_of(expected[i]), least));
  }
  return error.value();
}

// ---- the report

struct Run {
  const std::function<void(const std::string&)>& print;
  at::Device device;

  void note(const char* name, at::ScalarType type, double error) const {
    std::array<char, 96> line{};
    std::snprintf(line.data(), line.size(), "%-22s %-5s on %-6s largest error %.1e", name,
                  type == at::kFloat ? "f32" : "bf16", device.str().c_str(), error);
    print(line.data());
    const double allowed = allowed_error(type);
    if (error <= allowed) return;
    std::snprintf(line.data(), line.size(), "%s is off by %.1e, and %.1e is allowed", name, error, allowed);
    throw Failure(failed(line.data()).within(device.str()));
  }

  void check(at::ScalarType type) const {
    at::manual_seed(seed);
    check_functions(device, type, [&](const char* name, double error) { note(name, type, error); });
    if (device.is_cpu()) return;
    for (const std::string family : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "qwen3_moe"}) {
      // Rounding to 16 bits sends rows that are near a tie to other experts.
      if (family == "qwen3_moe" && type == at::kBFloat16) continue;
      const std::string name = "gradients of " + family;
      note(name.c_str(), type, model_error(small(family), device, type));
    }
  }
};

}  // namespace

Result<> check(const std::function<void(const std::string&)>& print) {
  return caught([&] {
    const bool gpu = at::hasCUDA() && at::detail::getCUDAHooks().getNumGPUs() > 0;
    const Run run{print, gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU)};
    run.check(at::kFloat);
    if (gpu) run.check(at::kBFloat16);
  });
}

}  // namespace tutti::train
