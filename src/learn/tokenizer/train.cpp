#include "learn/tokenizer/train.hpp"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "learn/tokenizer/definition.hpp"
#include "learn/tokenizer/merges.hpp"
#include "learn/tokenizer/split.hpp"

namespace tutti::tokenizer {
namespace {

constexpr std::int64_t pair_count_min = 2;  // what occurs once is no pattern
constexpr std::size_t counted_word_bytes_max =
    256;  // longer ones are counted in pieces: each merge walks through them
constexpr std::int64_t progress_every = 16;  // merges

struct Pair {
  std::uint32_t left;
  std::uint32_t right;
  friend bool operator==(const Pair&, const Pair&) = default;
  friend bool operator<(const Pair& a, const Pair& b) {
    return std::tie(a.left, a.right) < std::tie(b.left, b.right);
  }
};
struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return std::hash<std::uint64_t>()(std::uint64_t{pair.left} << 32U | pair.right);
  }
};

struct Word {
  std::vector<std::uint32_t> tokens;
  std::int64_t count;
};

// A pair with the count it had when it was put on the heap.
struct Candidate {
  std::int64_t count;
  Pair pair;
  // The most frequent one is the largest, of those the smallest pair.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.count != b.count ? a.count < b.count : b.pair < a.pair;
  }
};

// The words of a text, and all pairs of neighbours in them. Each merge walks only through the words that hold
// its pair.
class Learner {
 public:
  explicit Learner(const std::unordered_map<std::string, std::int64_t>& words) {
    for (std::size_t byte = 0; byte < byte_values; ++byte) add_token(std::string(1, static_cast<char>(byte)));
    words_.reserve(words.size());
    for (const auto& [text, count] : words) {
      Word word{.count = count};
      for (const char byte : text) word.tokens.push_back(static_cast<unsigned char>(byte));
      words_.push_back(std::move(word));
      count_pairs(words_.size() - 1, [](const Pair&) { return true; });
    }
    for (const auto& [pair, uses] : pairs_) offer(pair, uses.count);
  }

  std::int64_t tokens() const { return std::ssize(texts_); }
  std::vector<Merge> take_merges() { return std::move(merges_); }

  // Merges the most frequent pair. False if there is none.
  bool merge_next() {
    while (!candidates_.empty()) {
      const Candidate next = candidates_.top();
      candidates_.pop();
      const std::int64_t count = pairs_.at(next.pair).count;
      if (count == next.count) {
        merge(next.pair);
        return true;
      }
      offer(next.pair, count);
    }
    return false;
  }

 private:
  struct Uses {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // all that hold it, and some that no longer do
  };

  std::uint32_t add_token(std::string text) {
    const auto [known, fresh] = ids_.emplace(text, static_cast<std::uint32_t>(texts_.size()));
    if (fresh) texts_.push_back(std::move(text));
    return known->second;
  }

  void offer(const Pair& pair, std::int64_t count) {
    if (count >= pair_count_min) candidates_.push({count, pair});
  }

  // Adds the pairs of a word to the counts; those that `is_new` says were not in the word before.
  template <class IsNew>
  void count_pairs(std::size_t at, IsNew is_new) {
    const Word& word = words_[at];
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      const Pair pair{word.tokens[i], word.tokens[i + 1]};
      Uses& uses = pairs_[pair];
      uses.count += word.count;
      if (is_new(pair) && (uses.words.empty() || uses.words.back() != at)) uses.words.push_back(at);
    }
  }

  void discount_pairs(const Word& word) {
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i)
      pairs_.at({word.tokens[i], word.tokens[i + 1]}).count -= word.count;
  }

  void merge(const Pair& pair) {
    const std::uint32_t token = add_token(texts_[pair.left] + texts_[pair.right]);
    merges_.push_back({pair.left, pair.right, token});
    const auto involved = std::exchange(pairs_.at(pair).words, {});
    std::vector<Pair> made;
    for (const std::size_t at : involved) {
      if (!holds(words_[at], pair)) continue;
      discount_pairs(words_[at]);
      replace(words_[at], pair, token);
      count_pairs(at, [&](const Pair& each) {
        const bool fresh = each.left == token || each.right == token;
        if (fresh) made.push_back(each);
        return fresh;
      });
    }
    std::sort(made.begin(), made.end());
    made.erase(std::unique(made.begin(), made.end()), made.end());
    for (const Pair& each : made) offer(each, pairs_.at(each).count);
  }

  static bool holds(const Word& word, const Pair& pair) {
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      if (word.tokens[i] == pair.left && word.tokens[i + 1] == pair.right) return true;
    }
    return false;
  }

  static void replace(Word& word, const Pair& pair, std::uint32_t token) {
    auto& tokens = word.tokens;
    std::size_t end = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool here = i + 1 < tokens.size() && tokens[i] == pair.left && tokens[i + 1] == pair.right;
      tokens[end++] = here ? token : tokens[i];
      if (here) ++i;
    }
    tokens.resize(end);
  }

  std::vector<std::string> texts_;  // by token
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, Uses, PairHash> pairs_;
  std::priority_queue<Candidate> candidates_;
  std::vector<Merge> merges_;
};

}  // namespace

void Trainer::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_word(Pattern::gpt2, text);
    for (std::size_t at = 0; at < bytes; at += counted_word_bytes_max)
      count(text.substr(at, std::min(counted_word_bytes_max, bytes - at)));
    text.remove_prefix(bytes);
  }
}

void Trainer::count(std::string_view word) {
  const std::string key(word);
  const auto known = words_.find(key);
  if (known != words_.end()) {
    ++known->second;
  } else if (words_.size() < trained_words_max) {
    words_.emplace(key, 1);
  }
}

Result<Tokenizer> Trainer::train(std::int64_t vocabulary, const Progress& progress) const {
  if (vocabulary < trained_vocabulary_min || vocabulary > trained_vocabulary_max)
    return invalid("a vocabulary has " + std::to_string(trained_vocabulary_min) + " to " +
                   std::to_string(trained_vocabulary_max) + " tokens, not " + std::to_string(vocabulary));
  if (words_.empty()) return invalid("there is no text to learn from");
  Learner learner(words_);
  const std::int64_t wanted = vocabulary - 1;  // <|endoftext|> is not learned
  while (learner.tokens() < wanted && learner.merge_next()) {
    const bool due = learner.tokens() % progress_every == 0;
    if (due && progress && !progress(learner.tokens(), wanted)) return failed("interrupted");
  }
  return Tokenizer::parse(write_learned(learner.take_merges()));
}

}  // namespace tutti::tokenizer
