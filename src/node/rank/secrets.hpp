// The secrets of a rank on their way: from its agent to its shim in memory that no path names, and from there
// to files of mode 0400, in memory too, that are the rank's alone. They are never in an argument, a variable
// or a file of a disk. Any thread, unless it says otherwise.
#pragma once

#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "node/rank/account.hpp"

namespace tutti::rank {

constexpr std::size_t rank_secrets_max = 32;
constexpr std::size_t rank_secrets_bytes_max = std::size_t{256} << 10;
constexpr std::size_t rank_secret_name_bytes_max = 64;
// Where a shim finds them when it begins.
constexpr int secrets_descriptor = 3;
// The folder of the files, in the rank's environment.
constexpr const char* secrets_variable = "TUTTI_SECRETS";

struct SecretFile {
  std::string name;
  std::string value;

  friend bool operator==(const SecretFile&, const SecretFile&) = default;
};
// What was in the clear there is not left in memory.
void forget(std::vector<SecretFile>& files);

// As what a shim inherits: gone when the last descriptor of it is closed.
Result<files::FileDescriptor> pack_secrets(const std::vector<SecretFile>& files);
// Refuses what pack_secrets() has not made, and names that could lead out of a folder.
Result<std::vector<SecretFile>> unpack_secrets(int file);

// Into an open folder, for that account; for this process's where there is none. 0, or why not.
int write_secrets(const files::FileDescriptor& folder, const std::vector<SecretFile>& files,
                  const Account* account);

// A file system of the calling process's own, which has one thread and a mount namespace of its own: it goes
// with the last process there. 0, or why not; then the process must not go on.
int mount_secrets(const std::vector<SecretFile>& files, const Account& account, std::string& folder);

// Where there can be none: a folder of this process's in memory that all share. Of others the rank's account
// alone may pass through it, if there is one, and may lay nothing in it. Where it is, is noted in the rank's
// folder before anything is in it, so that whoever comes after the shim finds it. Refuses to write to a disk.
Result<std::string> make_secrets_folder(const std::string& rank_folder, const std::vector<SecretFile>& files,
                                        const Account* account);
// Removes it, if there is one. Again is fine.
void remove_secrets_folder(const std::string& rank_folder);

}  // namespace tutti::rank
