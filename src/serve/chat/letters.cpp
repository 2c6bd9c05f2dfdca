#include "serve/chat/letters.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/text.hpp"

namespace tutti::serve::chat {
namespace {

bool is_lower(char letter) { return letter >= 'a' && letter <= 'z'; }
bool is_upper(char letter) { return letter >= 'A' && letter <= 'Z'; }
char raised(char letter) { return is_lower(letter) ? static_cast<char>(letter - 'a' + 'A') : letter; }
char lowered(char letter) { return is_upper(letter) ? static_cast<char>(letter - 'A' + 'a') : letter; }

// White space of more than one byte.
constexpr std::array<std::string_view, 19> wide_spaces{
    "\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
    "\u2007", "\u2008", "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};

// Where the last letter begins of a text that is not empty.
std::size_t last_letter(std::string_view text) {
  for (std::size_t bytes = std::min<std::size_t>(text.size(), 4); bytes > 1; --bytes) {
    if (utf8_length(text.substr(text.size() - bytes)) == bytes) return text.size() - bytes;
  }
  return text.size() - 1;
}

template <class Stripped>
std::string_view strip_while(std::string_view text, Sides sides, Stripped stripped) {
  while (sides.left && !text.empty() && stripped(text.substr(0, first_letter_bytes(text))))
    text.remove_prefix(first_letter_bytes(text));
  while (sides.right && !text.empty() && stripped(text.substr(last_letter(text))))
    text = text.substr(0, last_letter(text));
  return text;
}

}  // namespace

bool append_code_point(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  if (code < 0x80) {
    put(code);
    return true;
  }
  const unsigned rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr std::array<std::uint32_t, 4> leads{0, 0xC0, 0xE0, 0xF0};
  put(leads[rest] | code >> 6 * rest);
  for (unsigned at = rest; at-- > 0;) put(0x80U | (code >> 6 * at & 0x3FU));
  return true;
}

std::size_t first_letter_bytes(std::string_view text) { return std::max<std::size_t>(utf8_length(text), 1); }

std::size_t count_letters(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_letter_bytes(text));
  return count;
}

std::string_view from_letter(std::string_view text, std::size_t letter) {
  for (; letter > 0 && !text.empty(); --letter) text.remove_prefix(first_letter_bytes(text));
  return text;
}

std::vector<std::string_view> to_letters(std::string_view text) {
  std::vector<std::string_view> letters;
  while (!text.empty()) {
    letters.push_back(text.substr(0, first_letter_bytes(text)));
    text.remove_prefix(letters.back().size());
  }
  return letters;
}

bool begins_with_space(std::string_view text) {
  if (text.empty()) return false;
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80)
    return first == ' ' || (first >= 0x09 && first <= 0x0D) || (first >= 0x1C && first <= 0x1F);
  return std::any_of(wide_spaces.begin(), wide_spaces.end(),
                     [&](std::string_view space) { return text.starts_with(space); });
}

std::string_view strip(std::string_view text, Sides sides) {
  return strip_while(text, sides, [](std::string_view letter) { return begins_with_space(letter); });
}

std::string_view strip(std::string_view text, Sides sides, std::string_view what) {
  std::set<std::string_view> letters;  // each once, however long the text is that they come from
  for (; !what.empty(); what.remove_prefix(first_letter_bytes(what)))
    letters.insert(what.substr(0, first_letter_bytes(what)));
  return strip_while(text, sides, [&](std::string_view letter) { return letters.contains(letter); });
}

std::string to_upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), raised);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lowered);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out(text);
  bool inside = false;
  for (char& letter : out) {
    letter = inside ? lowered(letter) : raised(letter);
    inside = is_lower(letter) || is_upper(letter) || (static_cast<unsigned char>(letter) >= 0x80);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out = to_lower(text);
  if (!out.empty()) out.front() = raised(out.front());
  return out;
}

std::size_t find_text(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  const void* const found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

// The first time in the text that is turned round: going on behind each place would be quadratic again.
std::size_t find_last_text(std::string_view text, std::string_view what) {
  const std::size_t found =
      find_text(std::string(text.rbegin(), text.rend()), std::string(what.rbegin(), what.rend()));
  return found == std::string_view::npos ? found : text.size() - found - what.size();
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by, std::size_t most) {
  std::string out;
  if (what.empty()) {  // Python puts it between all letters
    for (const std::string_view letter : to_letters(text)) {
      if (most > 0) out += by;
      if (most > 0) --most;
      out += letter;
    }
    if (most > 0) out += by;
    return out;
  }
  std::size_t done = 0;
  for (; most > 0; --most) {
    const std::size_t found = find_text(text, what, done);
    if (found == std::string_view::npos) break;
    out += text.substr(done, found - done);
    out += by;
    done = found + what.size();
  }
  return out += text.substr(done);
}

}  // namespace tutti::serve::chat
