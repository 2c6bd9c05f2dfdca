#include "worker/check.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <torch/version.h>

namespace tutti::worker {
namespace {

// Small whole numbers have an exact product in float32, on any device and in any order of summation.
Result<> multiply_on(const at::Device& device) {
  constexpr std::int64_t size = 64;
  const auto row = at::arange(size, at::kFloat).remainder(7);
  const auto a = row.unsqueeze(0).expand({size, size}).contiguous();
  const auto expected = at::full({size, size}, row.sum().item<float>());
  const auto product = at::matmul(a.to(device), at::ones({size, size}, at::kFloat).to(device)).cpu();
  if (!at::equal(product, expected)) return failed("a matrix product came out wrong").within(device.str());
  return {};
}

int cuda_devices() { return at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().getNumGPUs()) : 0; }

}  // namespace

std::string describe() {
  const int gpus = cuda_devices();
  return std::string("torch ") + TORCH_VERSION + ", " +
         (gpus == 0 ? "cpu only" : std::to_string(gpus) + " CUDA device(s)");
}

Result<std::string> check() {
  std::string checked = "cpu";
  try {
    if (auto cpu = multiply_on(at::kCPU); !cpu) return std::move(cpu).error();
    for (int gpu = 0; gpu < cuda_devices(); ++gpu) {
      const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(gpu));
      if (auto done = multiply_on(device); !done) return std::move(done).error();
      checked += ", " + device.str();
    }
  } catch (const std::exception& thrown) {
    return failed(thrown.what()).within("libtorch");
  }
  return checked;
}

}  // namespace tutti::worker
