#include "learn/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "learn/tokenizer/definition.hpp"
#include "learn/tokenizer/nfc.hpp"
#include "learn/tokenizer/unicode.hpp"

namespace tutti::tokenizer {
namespace {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(what, at), text.size());
    out += text.substr(at, found - at);
    if (found < text.size()) out += by;
    at = found + what.size();
  }
  return out;
}

using Words = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;

// As the text is when added tokens are looked for in it that are `normalized`.
std::string normal_form(const Definition& definition, std::string_view text) {
  std::string normal = definition.nfc && !is_surely_nfc(text) ? to_nfc(text) : std::string(text);
  if (definition.symbols == Symbols::code_points) normal = replaced(normal, blank_letter, " ");
  if (definition.prefix == Prefix::always && !normal.empty()) normal.insert(normal.begin(), ' ');
  return normal;
}

struct Which {
  bool normalized;
  bool special;  // these, too
};
std::vector<AddedToken> added_tokens(const Definition& definition, Which which) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : definition.added) {
    if (token.normalized != which.normalized || (token.special && !which.special)) continue;
    if (token.normalized) token.content = normal_form(definition, token.content);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<AddedToken> special_tokens(const Definition& definition) {
  std::vector<AddedToken> tokens;
  std::copy_if(definition.added.begin(), definition.added.end(), std::back_inserter(tokens),
               [](const AddedToken& token) { return token.special; });
  return tokens;
}

void append_symbols(const Definition& definition, std::string_view word, std::vector<std::uint32_t>& out) {
  const auto byte_token = [&](char byte) { return definition.byte_tokens[static_cast<unsigned char>(byte)]; };
  if (definition.symbols == Symbols::bytes) {
    for (const char byte : word) out.push_back(byte_token(byte));
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    const Symbol symbol = symbol_at(word, at);
    const auto letter = definition.letter_tokens.find(symbol.code);
    if (letter != definition.letter_tokens.end()) {
      out.push_back(letter->second);
    } else {
      for (const char byte : word.substr(at, symbol.bytes)) out.push_back(byte_token(byte));
    }
    at += symbol.bytes;
  }
}

}  // namespace

struct Tokenizer::Parts {
  Parts(Definition read, std::string text)
      : definition(std::move(read)),
        json(std::move(text)),
        merges(std::move(definition.merges)),
        literal(added_tokens(definition, {.normalized = false, .special = true})),
        literal_plain(added_tokens(definition, {.normalized = false, .special = false})),
        normalized(added_tokens(definition, {.normalized = true, .special = true})),
        normalized_plain(added_tokens(definition, {.normalized = true, .special = false})),
        special(special_tokens(definition)),
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
      if (!token.of_the_model || token.special) continue;
      word.clear();
      merged.clear();
      append_symbols(definition, token.bytes, word);
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
  AddedTokens literal;        // looked for in the text as it came
  AddedTokens literal_plain;  // those of them that are not special
  AddedTokens normalized;     // looked for in the normalised text
  AddedTokens normalized_plain;
  AddedTokens special;
  std::optional<std::uint32_t> end_of_text;
  Words words;
  std::size_t word_bytes_max = 0;
};

// One text on its way to tokens.
class Tokenizer::Encoder {
 public:
  Encoder(const Parts& parts, std::vector<std::uint32_t> begun, std::stop_token abandoned)
      : parts_(parts), abandoned_(std::move(abandoned)), out_(std::move(begun)) {}

  std::vector<std::uint32_t> encode(std::string_view text, const EncodeOptions& options) {
    if (!options.special) {
      plain(text, true);
    } else {
      around(parts_.literal, text, true, [&](std::string_view part, bool first) {
        if (options.guards && part.find(guard_letter) != std::string_view::npos) {
          plain(replaced(part, guard_letter, ""), first);
        } else {
          normalise(part, first, parts_.normalized);
        }
      });
    }
    return std::move(out_);
  }

 private:
  // The added tokens become tokens, and what lies between them goes on; `first` is what begins the text.
  template <class Between>
  void around(const AddedTokens& tokens, std::string_view text, bool first, Between between) {
    std::size_t done = 0;
    while (const auto match = tokens.find(text, done)) {
      if (match->at > done) between(text.substr(done, match->at - done), first && done == 0);
      out_.push_back(match->token->id);
      done = match->at + match->token->content.size();
    }
    if (done < text.size()) between(text.substr(done), first && done == 0);
  }

  // Special tokens are letters.
  void plain(std::string_view text, bool is_first) {
    around(parts_.literal_plain, text, is_first,
           [this](std::string_view part, bool first) { normalise(part, first, parts_.normalized_plain); });
  }

  void normalise(std::string_view text, bool is_first, const AddedTokens& tokens) {
    const Definition& definition = parts_.definition;
    std::string normal;
    if (definition.nfc || definition.symbols == Symbols::code_points) {
      normal = normal_form(definition, text);
      text = normal;
    }
    around(tokens, text, is_first, [this](std::string_view part, bool first) { split(part, first); });
  }

  void split(std::string_view text, bool first) {
    const Prefix prefix = parts_.definition.prefix;
    const bool may = prefix == Prefix::unless_blank || (prefix == Prefix::first_unless_blank && first);
    std::string prefixed;
    if (may && !text.starts_with(' ')) {
      prefixed = " " + std::string(text);
      text = prefixed;
    }
    while (!text.empty() && !abandoned_.stop_requested()) {
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
    append_symbols(parts_.definition, word, word_);
    parts_.merges.apply(word_, room_, out_, abandoned_);
  }

  const Parts& parts_;
  const std::stop_token abandoned_;
  MergeRoom room_;
  std::vector<std::uint32_t> word_;
  std::vector<std::uint32_t> out_;
};

Tokenizer Tokenizer::bytes() { return std::move(parse(write_learned({}))).value(); }

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  auto definition = read_definition(tokenizer_json);
  if (!definition) return std::move(definition).error().within("tokenizer.json");
  Frame frame{std::move(definition->before), std::move(definition->after)};
  return Tokenizer(std::make_shared<const Parts>(std::move(*definition), std::string(tokenizer_json)),
                   std::move(frame));
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Encoder encoder(*parts_, options.frame ? frame_.before : std::vector<std::uint32_t>(), options.abandoned);
  auto tokens = encoder.encode(text, options);
  if (options.frame) tokens.insert(tokens.end(), frame_.after.begin(), frame_.after.end());
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> tokens, const DecodeOptions& options) const {
  std::string text;
  for (const std::uint32_t id : tokens) {
    if (options.special || !is_special(id)) text += token_bytes(id);
  }
  if (strips_blank() && !options.continues && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string Tokenizer::guarded(std::string_view text) const {
  static constexpr std::string_view unknown_letter = "\xEF\xBF\xBD";
  const std::string clean = replaced(text, guard_letter, unknown_letter);
  std::string out;
  std::size_t done = 0;
  while (const auto match = parts_->special.find(clean, done)) {
    const std::size_t inside = match->at + symbol_at(clean, match->at).bytes;
    out += clean.substr(done, inside - done);
    out += guard_letter;
    done = inside;
  }
  return out + clean.substr(done);
}

std::string_view Tokenizer::token_bytes(std::uint32_t token) const {
  const auto& tokens = parts_->definition.tokens;
  return token < tokens.size() ? std::string_view(tokens[token].bytes) : std::string_view();
}

bool Tokenizer::is_special(std::uint32_t token) const {
  const auto& tokens = parts_->definition.tokens;
  return token < tokens.size() && tokens[token].special;
}

std::optional<std::uint32_t> Tokenizer::find(std::string_view content) const {
  for (const AddedToken& token : parts_->definition.added) {
    if (token.content == content) return token.id;
  }
  const auto& tokens = parts_->definition.tokens;
  const auto found = std::find_if(tokens.begin(), tokens.end(),
                                  [&](const Definition::Token& token) { return token.bytes == content; });
  if (content.empty() || found == tokens.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - tokens.begin());
}

Tokenizer Tokenizer::with_frame(Frame frame) const { return {parts_, std::move(frame)}; }

bool Tokenizer::strips_blank() const { return parts_->definition.strips_blank; }

std::size_t Tokenizer::next_cut(std::string_view text, std::size_t from) const {
  // A blank in front of each text would be one in front of each piece.
  const bool cuttable = parts_->definition.symbols == Symbols::bytes &&
                        parts_->definition.pattern != Pattern::whole &&
                        parts_->definition.prefix == Prefix::none && !parts_->literal.contain('\n') &&
                        !parts_->normalized.contain('\n');
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
