// Lines that a person types, one at a time, where Ctrl-C ends a line and not the program. Main thread.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::cli {

inline constexpr std::size_t line_bytes_max = std::size_t{1} << 20;

class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}

  enum class Kind { line, interrupted, too_long, end };
  struct Line {
    Kind kind = Kind::end;
    std::string text;  // without its end
  };
  Line next();

 private:
  int descriptor_;
  std::string unread_;
  bool ended_ = false;
};

}  // namespace tutti::cli
