// How a rank has ended, told where no disk is asked: in the name that the kernel keeps of its shim's process,
// which whoever wants to know reads in /proc. The folder of the rank has all of it as soon as its disk
// answers. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "node/rank/rank_folder.hpp"

namespace tutti::rank {

// By the shim, which this process is: its rank's main process has ended so. A rank cannot say it in its
// place.
void tell_end(std::int32_t exit_code);
// Nothing while the rank runs, and when its shim has gone.
std::optional<std::int32_t> told_end(const ShimProcess& shim);

}  // namespace tutti::rank
