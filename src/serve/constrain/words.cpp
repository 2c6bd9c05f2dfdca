#include "serve/constrain/words.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace tutti::serve {
namespace {

// Words come in their order, so that what lies beyond the beginning that the next one shares is done: it
// becomes a node, or is one already that goes on in the same way.
class Builder {
 public:
  explicit Builder(Grammar& grammar) : grammar_(grammar), end_(grammar.add()), path_(1) {}

  void add(std::string_view word) {
    const auto [mine, theirs] = std::mismatch(word.begin(), word.end(), last_.begin(), last_.end());
    const auto shared = static_cast<std::size_t>(mine - word.begin());
    while (path_.size() > shared + 1) close_last();
    path_.resize(word.size() + 1);
    path_.back().ends = true;
    last_ = word;
  }

  NodeId finish(NodeId from) {
    while (path_.size() > 1) close_last();
    write(path_.front(), from);
    return end_;
  }

 private:
  using Range = std::tuple<std::uint8_t, std::uint8_t, NodeId>;
  struct Open {
    std::vector<Range> ranges;
    bool ends = false;
    friend auto operator<=>(const Open&, const Open&) = default;
  };

  void write(const Open& open, NodeId node) {
    for (const auto& [first, last, to] : open.ranges) grammar_.edge(node, first, last, to);
    if (open.ends) grammar_.skip(node, end_);
  }

  void close_last() {
    Open done = std::move(path_.back());
    path_.pop_back();
    const auto [known, is_new] = closed_.try_emplace(std::move(done), 0);
    if (is_new) {
      known->second = grammar_.add_of_word();
      write(known->first, known->second);
    }
    const auto byte = static_cast<std::uint8_t>(last_[path_.size() - 1]);
    auto& ranges = path_.back().ranges;
    if (!ranges.empty() && std::get<2>(ranges.back()) == known->second &&
        std::get<1>(ranges.back()) + 1 == byte) {
      std::get<1>(ranges.back()) = byte;
    } else {
      ranges.emplace_back(byte, byte, known->second);
    }
  }

  Grammar& grammar_;
  NodeId end_;
  std::vector<Open> path_;  // along the last word, the beginning first
  std::string_view last_;
  std::map<Open, NodeId> closed_;
};

}  // namespace

NodeId add_words(Grammar& grammar, NodeId from, std::vector<std::string> words) {
  // By bytes without a sign, as the ranges of edges are.
  std::ranges::sort(words, [](const std::string& a, const std::string& b) {
    return std::ranges::lexicographical_compare(
        a, b, {}, [](char c) { return static_cast<std::uint8_t>(c); },
        [](char c) { return static_cast<std::uint8_t>(c); });
  });
  Builder builder(grammar);
  for (const std::string& word : words) builder.add(word);
  return builder.finish(from);
}

}  // namespace tutti::serve
