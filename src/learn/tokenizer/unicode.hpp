// Text as code points: UTF-8, and the few properties by which text is split into words (Unicode 14). Bytes
// that are no UTF-8 are symbols of their own. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::tokenizer {

constexpr char32_t code_point_max = 0x10FFFF;

enum class Kind : std::uint8_t { letter, number, space, other };

struct Symbol {
  char32_t code;  // of a byte that is no UTF-8: code_point_max + 1 + the byte
  std::size_t bytes;
};

// The symbol at this place, which is inside the text and where a symbol begins.
Symbol symbol_at(std::string_view text, std::size_t at);
// The symbol that ends at this place, which is not the beginning of the text.
Symbol symbol_before(std::string_view text, std::size_t at);

Kind kind_of(char32_t code);

bool is_utf8(std::string_view text);
// Writes what symbol_at() read.
void append_symbol(std::string& text, char32_t code);

}  // namespace tutti::tokenizer
