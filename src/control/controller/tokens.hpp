// The secrets that open the API: the cluster's own, each in a file, and those of people. Any thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "control/people/people.hpp"

namespace tutti::controller {

// The first line of a token file.
Result<std::string> read_token(const std::string& file);

// Makes the file with a new token, for its owner alone. One that holds a token stays as it is. An empty one
// is what a full disk or a lost machine has left, and nobody has a token from it: it is made anew, with a
// warning. One that holds something else is refused: somebody has put it there. `expected`: a token was there
// earlier, so that a missing one is worth a warning too.
Result<> make_token(const std::string& file, bool expected);

// A token of a person, with an id, and the text of which the store has only the hash.
struct NewToken {
  people::Token token;
  std::string text;
};
Result<NewToken> new_token(people::Token wish);

}  // namespace tutti::controller
