// Files and folders as checkpoints need them: whole or not there, and on the disk before the next thing
// happens. What others need too is in base/files. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::checkpoint {

// Readers see the old content or the new one, after a crash too.
Result<> replace_durably(const std::string& path, std::string_view content);

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
