#include "cli/terminal.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/log/log.hpp"
#include "base/visible.hpp"
#include "cli/command.hpp"

namespace tutti::cli {

void print_text(const std::string& text) { std::fputs(visible(text).c_str(), stdout); }

Result<> flush_text() {
  const int reason = std::fflush(stdout) == 0 ? 0 : errno;
  if (reason == 0 && std::ferror(stdout) == 0) return {};
  // Of a write that failed earlier nobody knows any more why.
  Error lost = reason != 0 ? failed_errno("cannot be written", reason) : failed("not all of it was written");
  return std::move(lost).within("standard output");
}

bool nobody_reads() {
  pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0;
}

void end_unread() {
  ::signal(SIGPIPE, SIG_DFL);
  ::raise(SIGPIPE);
  std::_Exit(exit_unread);
}

void print_note(const std::string& text) { log::say("tutti: " + visible(text) + "\n"); }

std::size_t terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace tutti::cli
