#include "learn/tokenizer/stream.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tutti::tokenizer {
namespace {

constexpr std::size_t letter_bytes_max = 4;

// How many bytes a letter has that begins with this one; 0 if none does.
std::size_t letter_bytes(unsigned char first) {
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

// The second byte of a letter has bounds of its own after some first ones.
bool may_follow(unsigned char first, unsigned char second) {
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

// How many bytes at the end are the beginning of a letter that may still become whole.
std::size_t unfinished(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min(letter_bytes_max - 1, text.size()); ++bytes) {
    const auto first = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((first & 0xC0U) == 0x80U) continue;  // inside a letter: it begins before
    if (letter_bytes(first) <= bytes) return 0;
    const bool fits =
        bytes == 1 || may_follow(first, static_cast<unsigned char>(text[text.size() - bytes + 1]));
    return fits ? bytes : 0;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(Tokenizer tokenizer, const DecodeOptions& options)
    : tokenizer_(std::move(tokenizer)),
      special_(options.special),
      at_the_beginning_(tokenizer_.strips_blank() && !options.continues) {}

std::string TextStream::add(std::uint32_t token) {
  if (!special_ && tokenizer_.is_special(token)) return "";
  std::string_view bytes = tokenizer_.token_bytes(token);
  if (bytes.empty()) return "";
  if (std::exchange(at_the_beginning_, false) && bytes.starts_with(' ')) bytes.remove_prefix(1);
  std::string text = std::exchange(held_, {}) + std::string(bytes);
  const std::size_t rest = unfinished(text);
  held_ = text.substr(text.size() - rest);
  text.resize(text.size() - rest);
  return text;
}

std::string TextStream::finish() { return std::exchange(held_, {}); }

}  // namespace tutti::tokenizer
