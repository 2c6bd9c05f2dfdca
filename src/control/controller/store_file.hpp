// Where the store lies in the folder of a controller. Any thread.
#pragma once

#include <string>

namespace tutti::controller {

inline std::string store_file(const std::string& folder) { return folder + "/store.db"; }

}  // namespace tutti::controller
