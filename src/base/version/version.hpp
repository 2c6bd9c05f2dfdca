// Which tutti this is. Generated at build time from the project's version and the commit.
#pragma once

#include <string_view>

namespace tutti {

std::string_view version();
std::string_view commit();

}  // namespace tutti
