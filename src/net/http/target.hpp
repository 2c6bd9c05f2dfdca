// The target of a request: what stands between the method and the version. For this module's own files only.
#pragma once

#include <string_view>

#include "net/http/http.hpp"

namespace tutti::net {

// Fills the path, its parts and the query. False if it is no path.
bool read_target(std::string_view target, Request& request);

}  // namespace tutti::net
