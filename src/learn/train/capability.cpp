#include "learn/train/capability.hpp"

#include <string>

#include "learn/train/math.hpp"

namespace tutti::train {

Result<> check_capability(std::string_view gpu, int major, int minor) {
  constexpr int oldest_major = 8;
  if (major >= oldest_major) return {};
  return invalid(std::string(gpu) + " has compute capability " + std::to_string(major) + "." +
                 std::to_string(minor) + ", and GPUs train from 8.0 (Ampere) on")
      .remedy("drain nodes with such GPUs, or train on CPUs: --ranks N");
}

Result<> check_device(int device) {
  return device < 0 ? Result<>() : math::check_device({at::kCUDA, static_cast<at::DeviceIndex>(device)});
}

}  // namespace tutti::train
