// Names of files, in messages above all. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tutti::files {

// Of bounded length, and without bytes that a terminal would act on.
std::string printable(std::string_view name);

// The same in quotes, for names that others chose.
std::string shown(std::string_view name);

// Begins so, and goes on as nobody can foretell.
std::string unforeseen_name(std::string_view begin);

}  // namespace tutti::files
