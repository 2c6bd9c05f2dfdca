#include "learn/tokenizer/unicode.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "learn/tokenizer/unicode_table.hpp"

namespace tutti::tokenizer {
namespace {

constexpr char32_t ascii_end = 0x80;
constexpr char32_t surrogates_first = 0xD800;
constexpr char32_t surrogates_last = 0xDFFF;
constexpr std::size_t symbol_bytes_max = 4;

// \s: the property White_Space.
constexpr std::array<CodeRange, 10> spaces{{{0x9, 0xD},
                                            {0x20, 0x20},
                                            {0x85, 0x85},
                                            {0xA0, 0xA0},
                                            {0x1680, 0x1680},
                                            {0x2000, 0x200A},
                                            {0x2028, 0x2029},
                                            {0x202F, 0x202F},
                                            {0x205F, 0x205F},
                                            {0x3000, 0x3000}}};

bool contains(std::span<const CodeRange> ranges, char32_t code) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](char32_t wanted, const CodeRange& range) { return wanted < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

Kind look_up(char32_t code) {
  if (contains(letters, code)) return Kind::letter;
  if (contains(spaces, code)) return Kind::space;
  return contains(numbers, code) ? Kind::number : Kind::other;
}

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// How long the symbol is that begins with this byte, and the bits of it that are in the byte.
struct Lead {
  std::size_t bytes;
  unsigned bits;
};
Lead lead_of(unsigned byte) {
  if (byte < 0x80) return {1, byte};
  if (byte >= 0xC2 && byte < 0xE0) return {2, byte & 0x1FU};
  if (byte >= 0xE0 && byte < 0xF0) return {3, byte & 0x0FU};
  if (byte >= 0xF0 && byte < 0xF5) return {4, byte & 0x07U};
  return {0, 0};
}

// A longer form than needed, half of a UTF-16 pair, or beyond the last one.
bool is_forbidden(char32_t code, std::size_t bytes) {
  constexpr std::array<char32_t, symbol_bytes_max + 1> first_of_length{0, 0, 0x80, 0x800, 0x10000};
  return code < first_of_length[bytes] || code > code_point_max ||
         (code >= surrogates_first && code <= surrogates_last);
}

}  // namespace

Symbol symbol_at(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  if (first < ascii_end) return {first, 1};
  const Symbol broken{code_point_max + 1 + first, 1};
  const Lead lead = lead_of(first);
  if (lead.bytes == 0 || lead.bytes > text.size() - at) return broken;
  char32_t code = lead.bits;
  for (std::size_t next = at + 1; next < at + lead.bytes; ++next) {
    if ((byte_at(text, next) & 0xC0U) != 0x80U) return broken;
    code = code << 6U | (byte_at(text, next) & 0x3FU);
  }
  return is_forbidden(code, lead.bytes) ? broken : Symbol{code, lead.bytes};
}

Symbol symbol_before(std::string_view text, std::size_t at) {
  for (std::size_t bytes = std::min(at, symbol_bytes_max); bytes > 1; --bytes) {
    const Symbol symbol = symbol_at(text, at - bytes);
    if (symbol.bytes == bytes) return symbol;
  }
  return symbol_at(text.substr(0, at), at - 1);
}

Kind kind_of(char32_t code) {
  static const auto ascii = [] {
    std::array<Kind, ascii_end> kinds;
    for (char32_t each = 0; each < ascii_end; ++each) kinds[each] = look_up(each);
    return kinds;
  }();
  return code < ascii_end ? ascii[code] : look_up(code);
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Symbol symbol = symbol_at(text, at);
    if (symbol.code > code_point_max) return false;
    at += symbol.bytes;
  }
  return true;
}

void append_symbol(std::string& text, char32_t code) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  const auto add_rest = [&](char32_t bits) { add(0x80U | (bits & 0x3FU)); };
  if (code > code_point_max) {
    add(code - code_point_max - 1);
  } else if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0U | code >> 6U);
    add_rest(code);
  } else if (code < 0x10000) {
    add(0xE0U | code >> 12U);
    add_rest(code >> 6U);
    add_rest(code);
  } else {
    add(0xF0U | code >> 18U);
    add_rest(code >> 12U);
    add_rest(code >> 6U);
    add_rest(code);
  }
}

}  // namespace tutti::tokenizer
