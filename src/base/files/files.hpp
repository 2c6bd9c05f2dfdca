// Files and folders for all rooms: read within a bound, written whole. Names in messages are printable. Any
// thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::files {

// A file that is open for reading, and its size when it was opened.
struct OpenFile {
  FileDescriptor file;
  std::uint64_t bytes = 0;
};
// Nothing if there is none. What is no regular file is refused, and never waited for: every path that a
// person names is opened here.
Result<std::optional<OpenFile>> open_file(const std::string& path);
// The same where a missing file is an error.
Result<OpenFile> open_existing_file(const std::string& path);

// The whole file, or nothing if there is none. A file above `bytes_max` is refused, and so is what is no
// regular file: a pipe could keep the caller waiting, and a device could go on for ever.
Result<std::optional<std::string>> read_file(const std::string& path, std::size_t bytes_max);
// The same in a folder that strangers write into: a link is refused, so that they do not choose what is read.
Result<std::optional<std::string>> read_plain_file(const std::string& path, std::size_t bytes_max);
// The same as read_file() where a missing file is an error.
Result<std::string> read_existing_file(const std::string& path, std::size_t bytes_max);

// Of a file that is open. `name` is for the message, where it stands as it is.
// Fills what it can of the buffer and says how much; 0 is the end of the file.
Result<std::size_t> read_some(int file, std::span<std::byte> buffer, const std::string& name);
// Fills all of the buffer; a file that ends before is an error.
Result<> read_at(int file, std::uint64_t begin, std::span<std::byte> buffer, const std::string& name);
Result<> write_all(int file, std::span<const std::byte> bytes, const std::string& name);
Result<> write_at(int file, std::uint64_t begin, std::span<const std::byte> bytes, const std::string& name);
// On the disk when this returns.
Result<> sync_file(int file, const std::string& name);

struct ReplaceOptions {
  mode_t mode = 0600;
  bool durable = false;  // on the disk when this returns, with its name
};
// Readers see the old content or the new one; if it is durable, after a crash too. On its way the new one is
// beside it as PATH.new.
Result<> replace_file(const std::string& path, std::string_view content, const ReplaceOptions& options = {});
// Where there was none, and on the disk when this returns.
Result<> write_new_file(const std::string& path, std::string_view content, mode_t mode = 0666);

// The names in a folder, sorted, without "." and ".."; nothing if there is no such folder.
Result<std::optional<std::vector<std::string>>> list_folder(const std::string& path);
Result<> make_folder(const std::string& path, mode_t mode);  // one that is there is fine
Result<> make_folders(const std::string& path);              // those above it too
struct RemoveOptions {
  bool of_users = false;  // whose folders lie in one of this process's own
};
// With all it holds, however deep and however much; one that is not there is fine. Links are removed and not
// followed. What cannot be removed stays, and all else goes: the first of it is told. So does what is mounted
// there, and, in a folder that is not this process's own, each folder in it that is somebody else's than
// that: who has had it may have moved there what he could never have removed.
Result<> remove_folder(const std::string& path, const RemoveOptions& options = {});
// What a folder takes on its disk with all it holds, at most `bytes_max`, which also stands for more entries
// than a look is worth and for what cannot be looked at. Neither links nor mounts are followed; 0 if it is
// not there.
std::uint64_t folder_bytes(const std::string& path, std::uint64_t bytes_max);
// Makes what was created, renamed or removed in the folder last.
Result<> sync_folder(const std::string& path);

}  // namespace tutti::files
