// The makers that table.cpp lists, one for each command's file.
#pragma once

#include <memory>

#include "cli/command.hpp"

namespace tutti::cli {

std::unique_ptr<Command> make_help();
std::unique_ptr<Command> make_version();

}  // namespace tutti::cli
