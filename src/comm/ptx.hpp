// The reduction as a GPU kernel, in PTX, which the driver compiles for the GPU at hand: no CUDA compiler is
// needed to build tutti, and none to run it. Pure.
//
// Each kernel `reduce` takes (table, sources, target, count, divide): `table` has the addresses of the
// sources and is handed over with the launch, so that launches do not wait for one another to read it;
// element i of the target becomes source 0 [i] . source 1 [i] . …, divided by `divide` if that is not 0. The
// order is that of reduce.hpp, and so are the bits.
#pragma once

#include <cstddef>
#include <string>

#include "comm/types.hpp"

namespace tutti::comm {

inline constexpr std::size_t reduce_sources_max = 64;

std::string reduce_ptx(DataType type, Reduction reduction);

// The kernel `copy` takes (target, source, count): so many units, both sides aligned to one.
inline constexpr std::size_t copy_unit_bytes = 16;
std::string copy_ptx();

}  // namespace tutti::comm
