// Files and folders as checkpoints need them: whole or not there, and on the disk before the next thing
// happens. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::checkpoint {

// The whole file, or nothing if there is none; a file above `bytes_max` is refused.
Result<std::optional<std::string>> read_file(const std::string& path, std::size_t bytes_max);

// Readers see the old content or the new one, after a crash too.
Result<> replace_file(const std::string& path, std::string_view content);

// Makes what was created, renamed or removed in the folder last.
Result<> sync_folder(const std::string& path);

Result<> make_folders(const std::string& path);   // those above it too; one that is there is fine
Result<> remove_folder(const std::string& path);  // with all it holds; one that is not there is fine
bool is_folder(const std::string& path);
Result<> rename_file(const std::string& from, const std::string& to);

// The names in a folder, sorted; none if there is no such folder.
Result<std::vector<std::string>> names_in(const std::string& folder);

// Whether it can only be the name of a file beside the one that names it: letters, digits, '-', '_' and '.'.
bool is_file_name(std::string_view name);

// A number as part of a name, with zeros in front, so that names sort as their numbers do.
std::string padded(std::int64_t number, std::size_t digits);

// Held by one process at a time, and given back with the object or the process.
class Lock {
 public:
  // Waits while another has it, for a minute at most.
  static Result<Lock> acquire(const std::string& path);

 private:
  explicit Lock(files::FileDescriptor file) : file_(std::move(file)) {}
  files::FileDescriptor file_;
};

}  // namespace tutti::checkpoint
