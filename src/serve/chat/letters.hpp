// Text by code points, as Python counts it: a byte that is no UTF-8 is a letter of its own. Upper and lower
// case are known of ASCII alone. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::serve::chat {

// False if there is no such code point.
bool append_code_point(std::string& text, std::uint32_t code);

// The bytes of the first letter of a text that is not empty.
std::size_t first_letter_bytes(std::string_view text);
std::size_t count_letters(std::string_view text);
std::vector<std::string_view> to_letters(std::string_view text);
// What is left from a letter on; nothing if there are fewer.
std::string_view from_letter(std::string_view text, std::size_t letter);
inline std::string_view letter_at(std::string_view text, std::size_t letter) {
  const std::string_view rest = from_letter(text, letter);
  return rest.empty() ? rest : rest.substr(0, first_letter_bytes(rest));
}

// What Python's isspace() says of the letter at the beginning.
bool begins_with_space(std::string_view text);

struct Sides {
  bool left = true;
  bool right = true;
};
// Without the white space around it, or without the letters of `what`.
std::string_view strip(std::string_view text, Sides sides);
std::string_view strip(std::string_view text, Sides sides, std::string_view what);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// The first letter of each word, or of the text alone.
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);

// Where a text begins in another, from `from` on or the last time; npos if nowhere. Linear whatever the texts
// are, which the standard library's search is not: those who write templates choose both of them.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t find_last_text(std::string_view text, std::string_view what);

// Where a text occurs, at most `most` times from the left.
std::string replace_all(std::string_view text, std::string_view what, std::string_view by, std::size_t most);

}  // namespace tutti::serve::chat
