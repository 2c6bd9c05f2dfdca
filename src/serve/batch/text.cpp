#include "serve/batch/text.hpp"

#include <algorithm>
#include <utility>

namespace tutti::serve {
namespace {

// How many bytes at the end are the beginning of a letter that is not whole, as far as UTF-8 lets it be one.
std::size_t unfinished_letter(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;  // not the first of its letter
    const std::size_t length = byte >= 0xF0U && byte < 0xF8U   ? 4
                               : byte >= 0xE0U && byte < 0xF0U ? 3
                               : byte >= 0xC0U && byte < 0xE0U ? 2
                                                               : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// Knuth, Morris and Pratt: the longest beginning of the text that is also the end of its first n + 1 bytes.
std::vector<std::size_t> fallbacks(std::string_view text) {
  std::vector<std::size_t> table(text.size(), 0);
  for (std::size_t end = 1, matched = 0; end < text.size(); ++end) {
    while (matched > 0 && text[end] != text[matched]) matched = table[matched - 1];
    if (text[end] == text[matched]) ++matched;
    table[end] = matched;
  }
  return table;
}

}  // namespace

AnswerText::AnswerText(const std::vector<std::string>& stop_texts) {
  for (const std::string& text : stop_texts) stops_.push_back({text, fallbacks(text), 0});
}

bool AnswerText::add(std::string_view bytes) {
  if (stops_.empty()) {
    pending_ += bytes;
    return false;
  }
  for (const char byte : bytes) {
    pending_ += byte;
    std::size_t longest = 0;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && byte != stop.text[stop.matched])
        stop.matched = stop.fallback[stop.matched - 1];
      if (byte == stop.text[stop.matched]) ++stop.matched;
      if (stop.matched == stop.text.size()) longest = std::max(longest, stop.matched);
    }
    if (longest == 0) continue;
    pending_.resize(pending_.size() - longest);
    over_ = true;
    return true;
  }
  return false;
}

std::string AnswerText::take() {
  if (over_) return finish();
  std::size_t held = 0;
  for (const Stop& stop : stops_) held = std::max(held, stop.matched);
  held = std::max(held, unfinished_letter(pending_));
  // What stands before a possible stop text may end in half a letter, too.
  const std::size_t sure = pending_.size() - held;
  held += unfinished_letter(std::string_view(pending_).substr(0, sure));
  std::string text = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, text.size());
  return text;
}

std::string AnswerText::finish() { return std::exchange(pending_, {}); }

}  // namespace tutti::serve
