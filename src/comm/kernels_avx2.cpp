#if defined(__x86_64__)

#include "comm/kernel_loops.hpp"

namespace tutti::comm {

const Kernels& avx2_kernels() {
  static const Kernels kernels = make_kernels("avx2");
  return kernels;
}

}  // namespace tutti::comm

#endif
