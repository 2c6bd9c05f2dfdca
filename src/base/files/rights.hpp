// Folders that a stranger has had, and taken the rights from: where the program is not root these hold for
// it, too. Links are not followed. Any thread.
#pragma once

#include <string>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::files {

// Its owner may do all with it again; nothing changes where this process is not the owner.
void restore_rights(const std::string& folder);
// The same of a folder in one that is open.
void restore_rights_in(const FileDescriptor& folder, const std::string& name);
// To another place on the same disk, whatever its rights; one that is not there is fine.
Result<> move_folder(const std::string& from, const std::string& to);

}  // namespace tutti::files
