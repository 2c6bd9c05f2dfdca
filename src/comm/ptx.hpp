// The reduction as a GPU kernel, in PTX, which the driver compiles for the GPU at hand: no CUDA compiler is
// needed to build tutti, and none to run it. Pure.
//
// Each kernel `reduce` takes (table, sources, targets, count, divide): `table` is in device memory and holds
// the addresses of the sources, then of the targets; element i of every target becomes source 0 [i] . source
// 1 [i] . …, divided by `divide` if that is not 0. The order is that of reduce.hpp, and so are the bits.
#pragma once

#include <string>

#include "comm/types.hpp"

namespace tutti::comm {

std::string reduce_ptx(DataType type, Reduction reduction);

}  // namespace tutti::comm
