#include "serve/batch/text.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"

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
std::vector<std::uint16_t> fallbacks(std::string_view text) {
  std::vector<std::uint16_t> table(text.size(), 0);
  std::uint16_t matched = 0;
  for (std::size_t end = 1; end < text.size(); ++end) {
    while (matched > 0 && text[end] != text[matched]) matched = table[matched - 1U];
    if (text[end] == text[matched]) ++matched;
    table[end] = matched;
  }
  return table;
}

}  // namespace

StopTexts::StopTexts(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    TUTTI_CHECK(text.size() <= std::numeric_limits<std::uint16_t>::max());
    stops_.push_back({text, fallbacks(text)});
  }
}

AnswerText::AnswerText(std::shared_ptr<const StopTexts> stops)
    : stops_(std::move(stops)), matched_(stops_->stops_.size()) {}

bool AnswerText::add(std::string_view bytes) {
  if (matched_.empty()) {
    pending_ += bytes;
    return false;
  }
  for (const char byte : bytes) {
    pending_ += byte;
    std::size_t longest = 0;
    for (std::size_t nth = 0; nth < matched_.size(); ++nth) {
      const auto& [text, fallback] = stops_->stops_[nth];
      std::uint16_t& matched = matched_[nth];
      while (matched > 0 && byte != text[matched]) matched = fallback[matched - 1U];
      if (byte == text[matched]) ++matched;
      if (matched == text.size()) longest = std::max<std::size_t>(longest, matched);
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
  for (const std::uint16_t matched : matched_) held = std::max<std::size_t>(held, matched);
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
