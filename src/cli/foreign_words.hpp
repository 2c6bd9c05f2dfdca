// What people type who know other tools, such as kubectl, docker and torchrun. Pure: any thread.
#pragma once

#include <string>
#include <string_view>

namespace tutti::cli {

// Which command of tutti does what they mean; "" for any other word.
std::string foreign_command_hint(std::string_view command);

}  // namespace tutti::cli
