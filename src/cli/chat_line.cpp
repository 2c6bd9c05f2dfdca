#include "cli/chat_line.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace tutti::cli {

LineReader::Line LineReader::next() {
  bool skips = false;
  for (;;) {
    const auto end = unread_.find('\n');
    if (end != std::string::npos || (ended_ && !unread_.empty())) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end == std::string::npos ? end : end + 1);
      if (skips) return {Kind::too_long, ""};
      if (line.ends_with('\r')) line.pop_back();
      return {Kind::line, std::move(line)};
    }
    if (ended_) return {skips ? Kind::too_long : Kind::end, ""};
    if (unread_.size() > line_bytes_max) {
      skips = true;
      unread_.clear();
    }
    // Waiting ends with a signal, whatever becomes of reads and writes then.
    pollfd readable{descriptor_, POLLIN, 0};
    if (::poll(&readable, 1, -1) < 0 && errno == EINTR) {
      unread_.clear();
      return {Kind::interrupted, ""};
    }
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(descriptor_, buffer.data(), buffer.size());
    if (got <= 0) {
      ended_ = true;
    } else {
      unread_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
}

}  // namespace tutti::cli
