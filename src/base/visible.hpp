// Text that somebody else wrote, made fit for a terminal: what would move the cursor, change the title or
// turn the writing round is shown instead of sent. What is already fit comes back as it is. Pure functions:
// any thread.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

// Control characters as \x1b, those of Unicode as \u202e, bytes that are no UTF-8 as \xff. Line ends and
// tabs stay.
std::string visible(std::string_view text);

// The same for what is to stay on its line, such as a name in a table: line ends and tabs are shown, too.
std::string visible_line(std::string_view text);

// The same for a log: carriage returns stay, and the sequences that choose colours do.
std::string visible_log(std::string_view text);

// Does it hold nothing that visible_line() would change?
bool is_visible_line(std::string_view text);

}  // namespace tutti
