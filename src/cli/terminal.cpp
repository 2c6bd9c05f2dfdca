#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "base/log/log.hpp"
#include "base/visible.hpp"

namespace tutti::cli {

void print_text(const std::string& text) { std::fputs(visible(text).c_str(), stdout); }

void print_note(const std::string& text) { log::say("tutti: " + visible(text) + "\n"); }

std::size_t terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace tutti::cli
