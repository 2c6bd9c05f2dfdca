#include "learn/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <utility>

namespace tutti::tokenizer {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const auto& token : tokens_) begins_[static_cast<unsigned char>(token.content.front())] = true;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, std::size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    if (const auto* token = longest_at(text.substr(at))) return Match{at, token};
  }
  return std::nullopt;
}

// Narrows the sorted tokens down to those that agree with the text, one byte more at a time.
const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto begin = tokens_.begin();
  auto end = tokens_.end();
  for (std::size_t size = 1; begin != end && size <= text.size(); ++size) {
    const std::string_view beginning = text.substr(0, size);
    begin =
        std::partition_point(begin, end, [&](const AddedToken& token) { return token.content < beginning; });
    end = std::partition_point(begin, end,
                               [&](const AddedToken& token) { return token.content.starts_with(beginning); });
    if (begin != end && begin->content.size() == size) longest = &*begin;
  }
  return longest;
}

bool AddedTokens::contain(char letter) const {
  return std::any_of(tokens_.begin(), tokens_.end(), [&](const AddedToken& token) {
    return token.content.find(letter) != std::string::npos;
  });
}

}  // namespace tutti::tokenizer
