// Whether a file is a TorchScript archive, by the list of contents at its end: what a program needs libtorch
// for is known before libtorch is loaded. Nothing in it is believed but the names. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::serve {

inline constexpr std::uint64_t archive_list_bytes_max = std::uint64_t{64} << 20;

// The names in a zip file of so many bytes. `read` fills the buffer from a place in it, which is inside.
using ReadArchive = std::function<Result<>(std::uint64_t begin, std::span<std::byte> buffer)>;
Result<std::vector<std::string>> archive_names(std::uint64_t bytes, const ReadArchive& read);

// A file that begins as a zip file does: it is meant to be an archive, whatever is in it. False for folders,
// too.
bool looks_like_archive(const std::string& path);
// Says what it is instead: weights alone are no program.
Result<> check_script(const std::string& path);

}  // namespace tutti::serve
