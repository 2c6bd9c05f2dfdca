#include "comm/reduce.hpp"

#include <cstring>

#include "base/check.hpp"
#include "comm/kernels.hpp"

namespace tutti::comm {
namespace {

const Kernels& choose() {
#if defined(__x86_64__)
  // The AVX-512 file is compiled for these three, the AVX2 file for these two; every CPU with the one set has
  // F16C.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return avx512_kernels();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_kernels();
#endif
  return scalar_kernels();
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace

void reduce(const Reduce& how, std::span<std::byte* const> targets, std::span<const std::byte* const> sources,
            std::size_t count, Store store) {
  TUTTI_CHECK(!sources.empty());
  const bool divide = how.reduction == Reduction::average;
  const ReduceJob job{.targets = targets.data(),
                      .target_count = targets.size(),
                      .sources = sources.data(),
                      .source_count = sources.size(),
                      .count = count,
                      .divide_by = divide ? how.divide_by : 0,
                      .stream = store == Store::stream};
  kernels().reduce[static_cast<std::size_t>(how.type)][static_cast<std::size_t>(how.reduction)](job);
}

void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes, Store store) {
  if (bytes == 0 || target == source) return;
  if (store == Store::stream) {
    kernels().copy_stream(target, source, bytes);
  } else {
    std::memcpy(target, source, bytes);
  }
}

std::string_view instruction_set() { return kernels().name; }

}  // namespace tutti::comm
