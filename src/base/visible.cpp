#include "base/visible.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "base/text.hpp"

namespace tutti {
namespace {

constexpr std::size_t colour_bytes_max = 64;  // of one sequence: "\x1b[38;2;255;255;255m" has 19

enum class Kept { line_ends, nothing, colours };

// Of a valid one.
std::uint32_t code_point(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  if (bytes.size() == 1) return first;
  std::uint32_t code = first & (0xFFU >> (bytes.size() + 1));
  for (const char byte : bytes.substr(1)) code = (code << 6U) | (static_cast<unsigned char>(byte) & 0x3FU);
  return code;
}

// What a terminal obeys instead of showing it, and what makes it show letters in another order than they
// stand.
bool is_control(std::uint32_t code) {
  const bool ascii_or_c1 = code < 0x20 || (code >= 0x7F && code <= 0x9F);
  const bool line_or_direction = (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) ||
                                 code == 0x200E || code == 0x200F || code == 0x061C;
  const bool tag = code == 0xFEFF || (code >= 0xE0000 && code <= 0xE007F);
  return ascii_or_c1 || line_or_direction || tag;
}

bool stays(std::uint32_t code, Kept kept) {
  if (!is_control(code)) return true;
  const bool line_end_or_tab = code == '\n' || code == '\t';
  switch (kept) {
    case Kept::nothing:
      return false;
    case Kept::line_ends:
      return line_end_or_tab;
    case Kept::colours:
      return line_end_or_tab || code == '\r';
  }
  return false;
}

// ESC [ numbers m: the bytes of a sequence that chooses colours at the beginning, 0 if there is none.
std::size_t colour_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  for (std::size_t at = 2; at < text.size() && at < colour_bytes_max; ++at) {
    if (text[at] == 'm') return at + 1;
    const bool number = (text[at] >= '0' && text[at] <= '9') || text[at] == ';' || text[at] == ':';
    if (!number) return 0;
  }
  return 0;
}

std::string escaped(std::uint32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, code < 0x80 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(code));
  return text;
}

std::string byte_escaped(char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return text;
}

// The length of what is to be sent as it is, 0 if the first letter is to be shown instead.
std::size_t fit_length(std::string_view text, Kept kept) {
  if (kept == Kept::colours) {
    if (const std::size_t colour = colour_length(text); colour > 0) return colour;
  }
  const std::size_t length = utf8_length(text);
  return length > 0 && stays(code_point(text.substr(0, length)), kept) ? length : 0;
}

std::string shown_as(std::string_view text, Kept kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    std::size_t length = fit_length(text, kept);
    if (length > 0) {
      result += text.substr(0, length);
    } else {
      length = utf8_length(text);
      result += length > 0 ? escaped(code_point(text.substr(0, length))) : byte_escaped(text.front());
      length = std::max<std::size_t>(length, 1);
    }
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace

std::string visible(std::string_view text) { return shown_as(text, Kept::line_ends); }
std::string visible_line(std::string_view text) { return shown_as(text, Kept::nothing); }
std::string visible_log(std::string_view text) { return shown_as(text, Kept::colours); }

bool is_visible_line(std::string_view text) { return visible_line(text) == text; }

}  // namespace tutti
