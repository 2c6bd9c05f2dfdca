// The name of a content: its SHA-256 as 64 lower-case hexadecimal digits. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::sync {

// Upper case is refused: one content has one name.
bool is_hash(std::string_view text);

std::string hash_bytes(std::span<const std::byte> bytes);
Result<std::string> hash_file(const std::string& path);
// From where the descriptor stands to the end of the file. `path` is for the message.
Result<std::string> hash_descriptor(int file, const std::string& path);

}  // namespace tutti::sync
