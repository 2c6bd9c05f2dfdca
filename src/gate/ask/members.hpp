// The members of a JSON object as they stand in the text, without making values of them. For this module's
// own files only.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.hpp"

namespace tutti::gate {

// Tells each member of the outermost object: its key as it is written between its quotes, and the text of its
// value. What is nested is passed over: only its brackets and texts have to end. False stops it.
Result<> each_member(std::string_view text,
                     const std::function<bool(std::string_view key, std::string_view value)>& tell);

}  // namespace tutti::gate
