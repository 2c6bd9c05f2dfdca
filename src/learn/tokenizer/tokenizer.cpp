#include "learn/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "learn/tokenizer/definition.hpp"
#include "learn/tokenizer/nfc.hpp"

namespace tutti::tokenizer {
namespace {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Words = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;

std::vector<AddedToken> added_tokens(const Definition& definition, bool normalized) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : definition.added) {
    if (token.normalized != normalized) continue;
    if (normalized && definition.nfc) token.content = to_nfc(token.content);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void append_bytes(const Definition& definition, std::string_view word, std::vector<std::uint32_t>& out) {
  for (const char byte : word) out.push_back(definition.byte_tokens[static_cast<unsigned char>(byte)]);
}

}  // namespace

struct Tokenizer::Parts {
  Parts(Definition read, std::string text)
      : definition(std::move(read)),
        json(std::move(text)),
        merges(std::move(definition.merges)),
        literal(added_tokens(definition, false)),
        normalized(added_tokens(definition, true)),
        end_of_text(definition.end_of_text()) {
    learn_words();
  }

  // Most words of a text are one token, and are looked up here instead of being merged again and again.
  void learn_words() {
    MergeRoom room;
    std::vector<std::uint32_t> word;
    std::vector<std::uint32_t> merged;
    for (std::uint32_t id = 0; id < definition.tokens.size(); ++id) {
      const auto& token = definition.tokens[id];
      if (!token.of_the_model) continue;
      word.clear();
      merged.clear();
      append_bytes(definition, token.bytes, word);
      merges.apply(word, room, merged);
      const bool whole = merged.size() == 1 && merged.front() == id;
      if (!whole && !definition.ignore_merges) continue;
      words.emplace(token.bytes, id);
      word_bytes_max = std::max(word_bytes_max, token.bytes.size());
    }
  }

  Definition definition;
  std::string json;
  Merges merges;
  AddedTokens literal;     // looked for in the text as it came
  AddedTokens normalized;  // looked for in the normalised text
  std::optional<std::uint32_t> end_of_text;
  Words words;
  std::size_t word_bytes_max = 0;
};

// One text on its way to tokens.
class Tokenizer::Encoder {
 public:
  explicit Encoder(const Parts& parts) : parts_(parts) {}

  std::vector<std::uint32_t> encode(std::string_view text) {
    around(parts_.literal, text, [this](std::string_view part) { normalise(part); });
    return std::move(out_);
  }

 private:
  // The added tokens become tokens, and what lies between them goes on.
  template <class Between>
  void around(const AddedTokens& tokens, std::string_view text, Between between) {
    std::size_t done = 0;
    while (const auto match = tokens.find(text, done)) {
      if (match->at > done) between(text.substr(done, match->at - done));
      out_.push_back(match->token->id);
      done = match->at + match->token->content.size();
    }
    if (done < text.size()) between(text.substr(done));
  }

  void normalise(std::string_view text) {
    std::string normal;
    if (parts_.definition.nfc && !is_surely_nfc(text)) {
      normal = to_nfc(text);
      text = normal;
    }
    around(parts_.normalized, text, [this](std::string_view part) { split(part); });
  }

  void split(std::string_view text) {
    std::string prefixed;
    if (parts_.definition.prefix_space && !text.starts_with(' ')) {
      prefixed = " " + std::string(text);
      text = prefixed;
    }
    while (!text.empty()) {
      const std::size_t bytes = first_word(parts_.definition.pattern, text);
      add_word(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
  }

  void add_word(std::string_view word) {
    if (word.size() <= parts_.word_bytes_max) {
      if (const auto known = parts_.words.find(word); known != parts_.words.end()) {
        out_.push_back(known->second);
        return;
      }
    }
    word_.clear();
    append_bytes(parts_.definition, word, word_);
    parts_.merges.apply(word_, room_, out_);
  }

  const Parts& parts_;
  MergeRoom room_;
  std::vector<std::uint32_t> word_;
  std::vector<std::uint32_t> out_;
};

Tokenizer Tokenizer::bytes() { return std::move(parse(write_learned({}))).value(); }

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  auto definition = read_definition(tokenizer_json);
  if (!definition) return std::move(definition).error().within("tokenizer.json");
  return Tokenizer(std::make_shared<const Parts>(std::move(*definition), std::string(tokenizer_json)));
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text) const {
  return Encoder(*parts_).encode(text);
}

std::string Tokenizer::decode(std::span<const std::uint32_t> tokens) const {
  const auto& known = parts_->definition.tokens;
  std::string text;
  for (const std::uint32_t id : tokens) {
    if (id < known.size()) text += known[id].bytes;
  }
  return text;
}

std::size_t Tokenizer::next_cut(std::string_view text, std::size_t from) const {
  const bool cuttable = parts_->definition.pattern != Pattern::whole && !parts_->definition.prefix_space &&
                        !parts_->literal.contain('\n') && !parts_->normalized.contain('\n');
  if (!cuttable) return text.size();
  for (std::size_t at = text.find('\n', from == 0 ? 0 : from - 1); at != std::string_view::npos;
       at = text.find('\n', at + 1)) {
    if (may_cut_behind(text, at)) return at + 1;
  }
  return text.size();
}

std::int64_t Tokenizer::vocabulary() const { return std::ssize(parts_->definition.tokens); }
std::optional<std::uint32_t> Tokenizer::end_of_text() const { return parts_->end_of_text; }
const std::string& Tokenizer::json() const { return parts_->json; }

}  // namespace tutti::tokenizer
