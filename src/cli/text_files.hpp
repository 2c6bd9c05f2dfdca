// The text that a user names as files and folders. Main thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::cli {

struct TextFile {
  std::string path;
  std::uint64_t bytes = 0;
};

// The files, and those in the folders and below in the order of their names. Hidden ones and links to folders
// are passed over inside a folder.
Result<std::vector<TextFile>> find_text_files(const std::vector<std::string>& paths);

// Nothing if it is not UTF-8.
Result<std::optional<std::string>> read_text_file(const TextFile& file);

}  // namespace tutti::cli
