// The name of a content: its SHA-256 as 64 lower-case hexadecimal digits. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/units.hpp"

namespace tutti::sync {

constexpr Bytes most_bytes(std::numeric_limits<std::int64_t>::max());

// Upper case is refused: one content has one name.
bool is_hash(std::string_view text);

std::string hash_bytes(std::span<const std::byte> bytes);
Result<std::string> hash_file(const std::string& path);
// From where the descriptor stands to the end of the file, or that many bytes. `path` is for the message.
Result<std::string> hash_descriptor(int file, const std::string& path, Bytes bytes_max = most_bytes);

}  // namespace tutti::sync
