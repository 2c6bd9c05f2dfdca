#include "serve/cpu/instructions.hpp"

namespace tutti::serve::cpu {

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all;
#if defined(__x86_64__)
  // What the files of kernels are compiled for; every CPU with AVX2 has F16C.
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni")) {
    all.push_back(&avx512_kernels());
  }
  if (has_avx2) all.push_back(&avx2_kernels());
#endif
  all.push_back(&scalar_kernels());
  return all;
}

const Kernels& kernels() {
  static const Kernels& chosen = *all_kernels().front();
  return chosen;
}

}  // namespace tutti::serve::cpu
