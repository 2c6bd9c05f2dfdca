// What is mounted where, as the kernel's own table has it: no disk is asked, so that none can keep whoever
// looks. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::agent {

struct Mount {
  std::string point;  // the folder on which it is mounted
  std::string kind;   // "ext4", "nfs4"

  friend bool operator==(const Mount&, const Mount&) = default;
};

// The mount on which a folder is, whether that is there or not, by the names in its path: links are not
// followed. Nothing if the table, which is that of /proc/self/mountinfo, does not tell.
std::optional<Mount> mount_of(std::string_view table, std::string_view folder);

// For people: that a folder which all nodes are said to share is on a disk that only this machine can have.
// "" if it is on another kind, or if that is not known.
std::string not_shared(std::string_view table, const std::string& folder);

// "" if it cannot be read.
std::string mount_table();

}  // namespace tutti::agent
