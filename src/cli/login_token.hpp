// The tokens that `tutti login` was given, each in a file of its owner's alone, by the address of the
// controller. Used by the main thread only.
#pragma once

#include <string>

#include "base/result.hpp"

namespace tutti::cli {

// Whether there is one or not: in XDG_CONFIG_HOME/tutti, else in ~/.config/tutti. Not in the home of the
// local cluster, where nobody else keeps anything.
std::string login_token_file(const std::string& address);

Result<> keep_login_token(const std::string& address, const std::string& token);
// The id of the one that is kept; "" if there is none, or one without an id.
std::string login_token_id(const std::string& address);
// Whether there was one.
Result<bool> forget_login_token(const std::string& address);

}  // namespace tutti::cli
