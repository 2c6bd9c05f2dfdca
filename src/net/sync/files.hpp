// Folders and names as this module needs them. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::sync {

// Fills what it can of the buffer and says how much; 0 is the end of the file. `path` is for the message.
Result<std::size_t> read_some(int file, std::span<std::byte> buffer, const std::string& path);
Result<> write_all(int file, std::span<const std::byte> bytes, const std::string& path);

// The names in a folder, in no order, without "." and "..".
Result<std::vector<std::string>> list_folder(const std::string& path);

// A folder that is there already is fine.
Result<> ensure_folder(const std::string& path, mode_t mode);

// A file's name for a message: in quotes, of bounded length, and without bytes that a terminal would act on.
std::string shown(std::string_view name);

}  // namespace tutti::sync
