// The one key of an engine: read from a file that nobody else may read, compared without telling by its time
// how much of a guess was right. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::serve {

inline constexpr std::size_t key_file_bytes_max = 4096;
inline constexpr std::size_t key_letters_min = 16;

// The first line of the file. Refused is a file that others can read.
Result<std::string> read_key(const std::string& path);
// Of an engine here, which answers for it: refused is also a key that can be guessed.
Result<std::string> read_own_key(const std::string& path);

bool is_same_key(std::string_view key, std::string_view given);

}  // namespace tutti::serve
