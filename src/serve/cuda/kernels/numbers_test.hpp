// Numbers for the tests of kernels, and how far apart two lists of them are.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tutti::serve::cuda {

using Bits = std::uint16_t;

inline Bits narrowed(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<Bits>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}
inline float widened(Bits bits) {
  const std::uint32_t all = static_cast<std::uint32_t>(bits) << 16U;
  float value = 0;
  std::memcpy(&value, &all, sizeof(value));
  return value;
}

class Numbers {
 public:
  float next() {  // about normal, with a deviation of 1
    float sum = 0;
    for (int at = 0; at < 4; ++at) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      sum += static_cast<float>(state_ >> 40U) * 0x1p-24F - 0.5F;
    }
    return sum * 1.732F;
  }
  std::vector<Bits> bf16(std::int64_t count, float size) {
    std::vector<Bits> all;
    for (std::int64_t at = 0; at < count; ++at) all.push_back(narrowed(size * next()));
    return all;
  }
  std::vector<float> floats(std::int64_t count, float size) {
    std::vector<float> all;
    for (std::int64_t at = 0; at < count; ++at) all.push_back(size * next());
    return all;
  }

 private:
  std::uint64_t state_ = 7;
};

// ‖a − b‖ / ‖b‖; what is no number is infinitely far.
template <class A, class B>
double distance(std::size_t count, const A& a, const B& b) {
  double difference = 0;
  double length = 0;
  for (std::size_t at = 0; at < count; ++at) {
    difference += std::pow(static_cast<double>(a(at)) - static_cast<double>(b(at)), 2);
    length += std::pow(static_cast<double>(b(at)), 2);
  }
  const double far = std::sqrt(difference / length);
  return std::isfinite(far) ? far : INFINITY;
}

}  // namespace tutti::serve::cuda
