// The table of kernels that one instruction set provides; reduce.cpp chooses between the tables.
#pragma once

#include <cstddef>

#include "comm/types.hpp"

namespace tutti::comm {

struct ReduceJob {
  std::byte* const* targets;
  std::size_t target_count;
  const std::byte* const* sources;
  std::size_t source_count;
  std::size_t count;
  std::size_t divide_by;
  bool stream;
};
using ReduceKernel = void (*)(const ReduceJob& job);

struct Kernels {
  const char* name;
  ReduceKernel reduce[7][5];  // by DataType and Reduction
  void (*copy_stream)(std::byte* target, const std::byte* source, std::size_t bytes);
};

const Kernels& scalar_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();

}  // namespace tutti::comm
