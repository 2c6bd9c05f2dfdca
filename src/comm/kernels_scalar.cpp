#include "comm/kernel_loops.hpp"

namespace tutti::comm {

const Kernels& scalar_kernels() {
  static const Kernels kernels = make_kernels("scalar");
  return kernels;
}

}  // namespace tutti::comm
