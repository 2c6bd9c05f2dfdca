#include "serve/cpu/instructions.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tutti::serve::cpu {
namespace {

#if defined(__x86_64__)
// The matrix unit's registers are large, so that the system gives them to a process only when it asks.
bool may_use_amx() {
  constexpr unsigned tile_and_int8 = (1U << 24U) | (1U << 25U);
  constexpr long ask_for_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & tile_and_int8) != tile_and_int8) return false;
  return ::syscall(SYS_arch_prctl, ask_for_permission, tile_data) == 0;
}
#endif

}  // namespace

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all;
#if defined(__x86_64__)
  // What the files of kernels are compiled for; every CPU with AVX2 has F16C.
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni")) {
    if (may_use_amx()) all.push_back(&amx_kernels());
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
