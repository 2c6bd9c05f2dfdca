// When a folder changed, as far as the kernel knows by itself. A look at a disk that does not answer keeps
// more than the one who looks: whoever looks for the same name behind it waits until the first has its
// answer, and cannot be killed meanwhile. So nobody looks on behalf of ranks at a disk that they share. Any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.hpp"

namespace tutti::agent {

// When something in the folder was made or removed last. Nothing if the disk would have to be asked, or if
// there is no such folder. Does not wait for it, but on kernels before 5.12.
std::optional<Instant> known_change(const std::string& folder);

// The disk that the folder is on, or would be on if it were made; as little is asked, and nothing if that is
// not known.
std::optional<std::uint64_t> known_disk(const std::string& folder);

}  // namespace tutti::agent
