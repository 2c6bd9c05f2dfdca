// Where paths lie, whatever links and dots they are written with. Any thread.
#pragma once

#include <string>

namespace tutti::files {

// Whether the path is the folder or lies below it. Neither needs to be there yet.
bool is_inside(const std::string& path, const std::string& folder);

}  // namespace tutti::files
