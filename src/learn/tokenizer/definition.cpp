#include "learn/tokenizer/definition.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "base/text.hpp"
#include "learn/tokenizer/alphabet.hpp"
#include "learn/tokenizer/fields.hpp"
#include "learn/tokenizer/steps.hpp"
#include "learn/tokenizer/unicode.hpp"

namespace tutti::tokenizer {
namespace {

using Ids = std::unordered_map<std::string_view, std::uint32_t>;  // views into the document

// ---- the model: vocabulary and merges

void put_token(Definition& definition, std::uint32_t id, Definition::Token token) {
  if (definition.tokens.size() <= id) definition.tokens.resize(id + 1);
  definition.tokens[id] = std::move(token);
}

bool has_token(const Definition& definition, std::uint32_t id) {
  return id < definition.tokens.size() && !definition.tokens[id].bytes.empty();
}

// What SentencePiece calls the token of a byte: <0x0A>.
std::string byte_name(std::size_t byte) {
  static constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4U] + digits[byte & 0xFU] + ">";
}

// Text as SentencePiece writes it, with blanks in place of ▁.
std::string with_blanks(std::string_view piece) {
  std::string text;
  for (std::size_t at = 0; at < piece.size();) {
    const bool blank = piece.substr(at).starts_with(blank_letter);
    text += blank ? ' ' : piece[at];
    at += blank ? blank_letter.size() : 1;
  }
  return text;
}

// What a text of the vocabulary stands for. A blank that is written as itself is never met: blanks have
// become ▁.
Definition::Token token_of(const std::string& letters, Symbols symbols) {
  if (symbols == Symbols::code_points) return {with_blanks(letters), letters.find(' ') == std::string::npos};
  const auto bytes = from_letters(letters);
  return {bytes.value_or(letters), bytes.has_value()};
}

Ids read_vocabulary(Fields& model, Definition& definition) {
  Ids ids;
  const json::Value& vocabulary = model["vocab"];
  if (vocabulary.object() == nullptr) {
    model.refuse("model.vocab", vocabulary, "an object");
    return ids;
  }
  for (const auto& [letters, value] : *vocabulary.object()) {
    const auto id = model.id_of(value, "model.vocab." + shortened(letters));
    if (!id) return ids;
    if (letters.empty()) continue;  // no text becomes it
    if (has_token(definition, *id)) {
      model.tell("two tokens of 'model.vocab' have the id " + std::to_string(*id));
      return ids;
    }
    ids.emplace(letters, *id);
    put_token(definition, *id, token_of(letters, definition.symbols));
  }
  return ids;
}

// With a token for each byte there is no text that cannot be encoded.
void read_bytes(Fields& model, const Ids& ids, Definition& definition) {
  const bool of_bytes = definition.symbols == Symbols::bytes;
  for (std::size_t byte = 0; byte < byte_values; ++byte) {
    const std::string value(1, static_cast<char>(byte));
    const std::string letter = of_bytes ? to_letters(value) : byte_name(byte);
    const auto found = ids.find(letter);
    if (found == ids.end())
      return model.tell("'model.vocab' has no token " + in_quotes(letter) + " for byte " +
                        std::to_string(byte) + ": this is no BPE that can write every text");
    definition.byte_tokens[byte] = found->second;
    if (!of_bytes) definition.tokens[found->second] = {value, false};
  }
}

void read_letters(Definition& definition) {
  for (std::uint32_t id = 0; id < definition.tokens.size(); ++id) {
    const auto& token = definition.tokens[id];
    if (!token.of_the_model) continue;
    const Symbol first = symbol_at(token.bytes, 0);
    if (first.bytes == token.bytes.size()) definition.letter_tokens.emplace(first.code, id);
  }
}

// Where no merge joins a letter and a blank behind it, a blank begins a word, and words are looked up instead
// of merging all of a text at once.
bool blanks_begin_words(const Definition& definition) {
  return std::none_of(definition.merges.begin(), definition.merges.end(), [&](const Merge& merge) {
    return !definition.tokens[merge.left].bytes.ends_with(' ') &&
           definition.tokens[merge.right].bytes.starts_with(' ');
  });
}

// "left right" or ["left", "right"].
std::optional<std::pair<std::string_view, std::string_view>> parts_of(const json::Value& merge) {
  if (merge.text() != nullptr) {
    const auto parts = split(*merge.text(), ' ');
    if (parts.size() == 2) return std::pair(parts[0], parts[1]);
  } else if (merge.list() != nullptr && merge.list()->size() == 2) {
    const std::string* const left = merge.list()->front().text();
    const std::string* const right = merge.list()->back().text();
    if (left != nullptr && right != nullptr)
      return std::pair<std::string_view, std::string_view>(*left, *right);
  }
  return std::nullopt;
}

std::optional<Merge> read_merge(const json::Value& merge, const Ids& ids) {
  const auto parts = parts_of(merge);
  if (!parts) return std::nullopt;
  const auto left = ids.find(parts->first);
  const auto right = ids.find(parts->second);
  const auto result = ids.find(std::string(parts->first) + std::string(parts->second));
  if (left == ids.end() || right == ids.end() || result == ids.end()) return std::nullopt;
  return Merge{left->second, right->second, result->second};
}

void read_merges(Fields& model, const Ids& ids, Definition& definition) {
  const json::Value& merges = model["merges"];
  if (merges.list() == nullptr) return model.refuse("model.merges", merges, "a list");
  for (const json::Value& each : *merges.list()) {
    const auto merge = read_merge(each, ids);
    if (!merge)
      return model.tell("'model.merges[" + std::to_string(definition.merges.size()) +
                        "]' does not name two tokens that become one of 'model.vocab'");
    definition.merges.push_back(*merge);
  }
}

Ids read_model(Fields model, Definition& definition) {
  model.nothing_but({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  model.only("type", {nullptr, "BPE"});  // files of old have no type
  model.only("dropout", {nullptr, 0.0});
  model.only("continuing_subword_prefix", {nullptr, ""});
  model.only("end_of_word_suffix", {nullptr, ""});
  definition.ignore_merges = model.toggle("ignore_merges", false);
  if (definition.symbols == Symbols::code_points) model.only("byte_fallback", {true});
  // The rest of the fields is for text that has no tokens, and here all text has.
  Ids ids = read_vocabulary(model, definition);
  if (model.fine()) read_bytes(model, ids, definition);
  if (model.fine() && definition.symbols == Symbols::code_points) read_letters(definition);
  if (model.fine()) read_merges(model, ids, definition);
  if (definition.symbols == Symbols::code_points && definition.pattern == Pattern::whole &&
      blanks_begin_words(definition))
    definition.pattern = Pattern::blank_run;
  return ids;
}

// ---- tokens beside the model

void add_token(Fields token, const Ids& ids, Definition& definition) {
  token.nothing_but({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) token.only(flag, {nullptr, false});
  const auto id = token.id("id");
  std::string content = token.text("content");
  if (!id || !token.fine()) return;
  if (content.empty() || content.size() > added_token_bytes_max)
    return token.tell("'added_tokens.content' of token " + std::to_string(*id) + " has " +
                      std::to_string(content.size()) + " bytes, and 1 to " +
                      std::to_string(added_token_bytes_max) + " are known here");
  const auto known = ids.find(content);
  if (known == ids.end() ? has_token(definition, *id) : known->second != *id)
    return token.tell("'added_tokens' and 'model.vocab' do not agree on the token " + in_quotes(content));
  const bool of_the_model = has_token(definition, *id) && definition.tokens[*id].of_the_model &&
                            definition.tokens[*id].bytes == content;
  const bool special = token.toggle("special", false);
  const bool written_with_blanks = definition.symbols == Symbols::code_points;
  put_token(definition, *id, {written_with_blanks ? with_blanks(content) : content, of_the_model, special});
  definition.added.push_back({std::move(content), *id, token.toggle("normalized", !special), special});
}

void read_added(Fields& document, const Ids& ids, Definition& definition) {
  const json::Value& tokens = document["added_tokens"];
  if (tokens.is_null()) return;
  if (tokens.list() == nullptr) return document.refuse("added_tokens", tokens, "a list");
  for (const json::Value& token : *tokens.list()) {
    add_token(document.inner("added_tokens", token), ids, definition);
    if (!document.fine()) return;
  }
}

// What people write must not become a token that steers the model.
void check_merges(Fields& document, const Definition& definition) {
  for (const Merge& merge : definition.merges) {
    const auto& token = definition.tokens[merge.result];
    if (token.special)
      return document.tell("'model.merges' makes the special token " + in_quotes(token.bytes));
  }
}

void read_document(Fields document, Definition& definition) {
  document.nothing_but({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                        "post_processor", "decoder", "model"});
  document.only("truncation", {nullptr});
  document.only("padding", {nullptr});
  read_steps(document, definition);
  if (!document.fine()) return;
  const Ids ids = read_model(document.inner("model"), definition);
  if (document.fine()) read_added(document, ids, definition);
  if (document.fine()) check_merges(document, definition);
  if (document.fine()) read_post_processor(document, definition);
}

}  // namespace

std::optional<std::uint32_t> Definition::end_of_text() const {
  for (const std::string_view name :
       {end_of_text_content, std::string_view("<|end_of_text|>"), std::string_view("</s>"),
        std::string_view("<eos>"), std::string_view("<|eos|>")}) {
    const auto found =
        std::find_if(tokens.begin(), tokens.end(), [&](const Token& token) { return token.bytes == name; });
    if (found != tokens.end()) return static_cast<std::uint32_t>(found - tokens.begin());
  }
  return std::nullopt;
}

Result<Definition> read_definition(std::string_view tokenizer_json) {
  if (tokenizer_json.size() > tokenizer_json_bytes_max)
    return invalid("it has more than " + std::to_string(tokenizer_json_bytes_max >> 20U) + " MiB");
  const auto root = json::parse(tokenizer_json);
  if (!root || root->object() == nullptr) return invalid("it is no JSON object");
  std::string problem;
  Definition definition;
  read_document(Fields(*root, "", problem), definition);
  if (!problem.empty())
    return invalid(std::move(problem))
        .remedy("only BPE can be used here, as GPT-2, Llama, Mistral and Qwen have it");
  return definition;
}

std::string write_learned(std::span<const Merge> learned) {
  std::vector<std::string> letters;
  for (std::size_t byte = 0; byte < byte_values; ++byte)
    letters.push_back(to_letters(std::string(1, static_cast<char>(byte))));
  json::Array merges;
  for (const Merge& merge : learned) {
    merges.push_back(letters[merge.left] + " " + letters[merge.right]);
    if (merge.result == letters.size()) letters.push_back(letters[merge.left] + letters[merge.right]);
  }
  std::vector<json::Member> vocabulary;
  for (std::size_t id = 0; id < letters.size(); ++id) vocabulary.push_back({letters[id], id});
  const json::Object end_of_text{{"id", letters.size()}, {"content", end_of_text_content},
                                 {"single_word", false}, {"lstrip", false},
                                 {"rstrip", false},      {"normalized", false},
                                 {"special", true}};
  const json::Object byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const json::Object document{{"version", "1.0"},
                              {"truncation", nullptr},
                              {"padding", nullptr},
                              {"added_tokens", json::Array{end_of_text}},
                              {"normalizer", nullptr},
                              {"pre_tokenizer", byte_level},
                              {"post_processor", nullptr},
                              {"decoder", byte_level},
                              {"model", json::Object{{"type", "BPE"},
                                                     {"dropout", nullptr},
                                                     {"unk_token", nullptr},
                                                     {"continuing_subword_prefix", nullptr},
                                                     {"end_of_word_suffix", nullptr},
                                                     {"fuse_unk", false},
                                                     {"byte_fallback", false},
                                                     {"ignore_merges", false},
                                                     {"vocab", json::Object(std::move(vocabulary))},
                                                     {"merges", std::move(merges)}}}};
  return json::write(document);
}

}  // namespace tutti::tokenizer
