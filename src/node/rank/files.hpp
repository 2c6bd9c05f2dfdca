// Files as the rank's folder needs them: small, whole, and never half written. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::rank {

// The whole file, or nothing if there is none; a file above `bytes_max` is refused.
Result<std::optional<std::string>> read_file(const std::string& path, std::size_t bytes_max);

// Readers see the old content or the new one. Not flushed to the disk: a rank does not outlive its machine.
Result<> replace_file(const std::string& path, std::string_view content);

// Writes into a file that exists, in one call, as the files of cgroups want it. False if that is not allowed.
bool write_existing(const std::string& path, std::string_view content);

}  // namespace tutti::rank
