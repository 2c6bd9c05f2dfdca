// The way of words to a terminal: what other people and programs wrote (names, reasons, the ends of logs) can
// be in anything that a command says, so all of it passes through here and is shown, never obeyed. JSON has
// escapes of its own and goes straight out. Used by the main thread only.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace tutti::cli {

// To stdout, as it is but for what a terminal would obey.
void print_text(const std::string& text);

// Writes what was said to stdout so far; a disk may be full, which shows only then.
Result<> flush_text();

// Whoever read stdout through a pipe has gone. Does not wait, and writes nothing.
bool nobody_reads();
// Ends the program as its next word would: by SIGPIPE, of which shells say nothing.
[[noreturn]] void end_unread();

// "tutti: TEXT" on a line of stderr.
void print_note(const std::string& text);

// How wide the terminal is that stdout goes to; 0: it goes to none.
std::size_t terminal_columns();

}  // namespace tutti::cli
