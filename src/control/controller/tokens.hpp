// The secrets that open the API, each in a file of its own. Any thread.
#pragma once

#include <string>

#include "base/result.hpp"

namespace tutti::controller {

// The first line of a token file.
Result<std::string> read_token(const std::string& file);

// Makes the file with a new token, for its owner alone. One that holds a token stays as it is. An empty one
// is what a full disk or a lost machine has left, and nobody has a token from it: it is made anew, with a
// warning. One that holds something else is refused: somebody has put it there. `expected`: a token was there
// earlier, so that a missing one is worth a warning too.
Result<> make_token(const std::string& file, bool expected);

}  // namespace tutti::controller
