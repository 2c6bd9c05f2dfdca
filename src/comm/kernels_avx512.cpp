#if defined(__x86_64__)

#include "comm/kernel_loops.hpp"

namespace tutti::comm {

const Kernels& avx512_kernels() {
  static const Kernels kernels = make_kernels("avx512");
  return kernels;
}

}  // namespace tutti::comm

#endif
