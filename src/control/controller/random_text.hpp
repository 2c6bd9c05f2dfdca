// Text that nobody can guess. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace tutti::controller {

// So many random bytes in hexadecimal.
Result<std::string> random_hex(std::size_t bytes);

}  // namespace tutti::controller
