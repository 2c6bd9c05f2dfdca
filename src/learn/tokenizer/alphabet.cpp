#include "learn/tokenizer/alphabet.hpp"

#include <array>

#include "learn/tokenizer/unicode.hpp"

namespace tutti::tokenizer {
namespace {

constexpr std::size_t letters_count = 256;

struct Alphabet {
  std::array<std::string, letters_count> letters;
  std::array<int, 2 * letters_count> bytes;  // by the letter's code point, -1 where there is no letter
};

bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable bytes stand for themselves, as in Latin-1; the others follow from 256 on.
const Alphabet& alphabet() {
  static const auto made = [] {
    Alphabet alphabet;
    alphabet.bytes.fill(-1);
    char32_t next = letters_count;
    for (unsigned byte = 0; byte < letters_count; ++byte) {
      const char32_t code = is_printable(byte) ? byte : next++;
      append_symbol(alphabet.letters[byte], code);
      alphabet.bytes[code] = static_cast<int>(byte);
    }
    return alphabet;
  }();
  return made;
}

}  // namespace

std::string to_letters(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) letters += alphabet().letters[static_cast<unsigned char>(byte)];
  return letters;
}

std::optional<std::string> from_letters(std::string_view letters) {
  const auto& known = alphabet().bytes;
  std::string bytes;
  for (std::size_t at = 0; at < letters.size();) {
    const Symbol symbol = symbol_at(letters, at);
    if (symbol.code >= known.size() || known[symbol.code] < 0) return std::nullopt;
    bytes += static_cast<char>(known[symbol.code]);
    at += symbol.bytes;
  }
  return bytes;
}

}  // namespace tutti::tokenizer
