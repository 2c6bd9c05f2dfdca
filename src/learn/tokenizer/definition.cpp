#include "learn/tokenizer/definition.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/json/parse.hpp"
#include "base/json/write.hpp"
#include "base/text.hpp"
#include "learn/tokenizer/alphabet.hpp"

namespace tutti::tokenizer {
namespace {

using Ids = std::unordered_map<std::string_view, std::uint32_t>;  // views into the document

constexpr std::size_t shown_bytes_max = 60;

std::string shortened(std::string_view text) {
  return text.size() <= shown_bytes_max ? std::string(text)
                                        : valid_utf8(text.substr(0, shown_bytes_max)) + "…";
}
std::string in_quotes(std::string_view text) { return "'" + shortened(text) + "'"; }

// A value for a message. What is nested can be deep, and is only named.
std::string shown(const json::Value& value) {
  if (value.object() != nullptr) return "an object";
  if (value.list() != nullptr) return "a list";
  return value.text() != nullptr ? in_quotes(*value.text()) : json::write(value);
}

// The fields of one object. All that follows a mistake reads as if it were not there; the first one is told.
class Fields {
 public:
  Fields(const json::Value& object, std::string path, std::string& problem)
      : object_(object), path_(std::move(path)), problem_(problem) {
    if (object.object() == nullptr) refuse(path_.substr(0, path_.size() - 1), object, "an object");
  }

  // Missing or null.
  bool lacks(const char* key) const { return (*this)[key].is_null(); }
  const json::Value& operator[](const char* key) const {
    static const json::Value nothing;
    const json::Value* const found = object_.find(key);
    return found == nullptr ? nothing : *found;
  }

  bool toggle(const char* key, bool otherwise) {
    if (lacks(key)) return otherwise;
    const auto value = (*this)[key].boolean();
    if (!value) refuse(path_ + key, (*this)[key], "true or false");
    return value.value_or(false);
  }
  std::string text(const char* key) {
    if (const std::string* const found = (*this)[key].text()) return *found;
    refuse(path_ + key, (*this)[key], "a text");
    return "";
  }
  std::optional<std::uint32_t> id(const char* key) { return id_of((*this)[key], path_ + key); }
  std::optional<std::uint32_t> id_of(const json::Value& value, const std::string& where) {
    const auto id = value.count();
    if (id && *id < vocabulary_max) return static_cast<std::uint32_t>(*id);
    refuse(where, value, "a whole number below " + std::to_string(vocabulary_max));
    return std::nullopt;
  }

  // One of these values; missing is null.
  void only(const char* key, std::initializer_list<json::Value> values) {
    const json::Value& value = (*this)[key];
    const bool simple = value.object() == nullptr && value.list() == nullptr;
    if (simple && std::find(values.begin(), values.end(), value) != values.end()) return;
    std::string known;
    for (const json::Value& each : values) known += (known.empty() ? "" : " or ") + shown(each);
    refuse(path_ + key, value, known);
  }
  // What nobody here knows might change the tokens.
  void nothing_but(std::initializer_list<std::string_view> keys) {
    if (object_.object() == nullptr) return;
    for (const auto& [key, value] : *object_.object()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        tell("unknown field " + in_quotes(path_ + key));
    }
  }

  void refuse(const std::string& where, const json::Value& value, const std::string& known) {
    tell("'" + where + "' is " + shown(value) + ", and only " + known + " is known here");
  }
  void tell(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  Fields inner(const char* key) { return inner(key, (*this)[key]); }
  // One of a list.
  Fields inner(const char* key, const json::Value& element) { return {element, path_ + key + ".", problem_}; }
  bool fine() const { return problem_.empty(); }

 private:
  const json::Value& object_;
  std::string path_;  // ends with a dot unless it is empty
  std::string& problem_;
};

// ---- the model: vocabulary and merges

void put_token(Definition& definition, std::uint32_t id, Definition::Token token) {
  if (definition.tokens.size() <= id) definition.tokens.resize(id + 1);
  definition.tokens[id] = std::move(token);
}

bool has_token(const Definition& definition, std::uint32_t id) {
  return id < definition.tokens.size() && !definition.tokens[id].bytes.empty();
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
    const auto bytes = from_letters(letters);
    put_token(definition, *id, {bytes.value_or(letters), bytes.has_value()});
  }
  return ids;
}

// With a token for each byte there is no text that cannot be encoded.
void read_bytes(Fields& model, const Ids& ids, Definition& definition) {
  for (std::size_t byte = 0; byte < byte_values; ++byte) {
    const std::string letter = to_letters(std::string(1, static_cast<char>(byte)));
    const auto found = ids.find(letter);
    if (found != ids.end()) {
      definition.byte_tokens[byte] = found->second;
    } else {
      model.tell("'model.vocab' has no token " + in_quotes(letter) + " for byte " + std::to_string(byte) +
                 ": this is no byte-level BPE");
    }
  }
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
  // The rest of the fields is for text that has no tokens, and here all text has.
  Ids ids = read_vocabulary(model, definition);
  if (model.fine()) read_bytes(model, ids, definition);
  if (model.fine()) read_merges(model, ids, definition);
  return ids;
}

// ---- what happens to text before it meets the model

void read_normalizer(Fields& document, Definition& definition) {
  if (document.lacks("normalizer")) return;
  Fields normalizer = document.inner("normalizer");
  normalizer.nothing_but({"type"});
  normalizer.only("type", {"NFC"});
  definition.nfc = true;
}

void check_byte_level(Fields& step) {
  step.nothing_but({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  step.only("type", {"ByteLevel"});
}

// All of the text is matched by the known patterns, so that what matches and what lies between are the same.
Pattern read_split(Fields step) {
  step.nothing_but({"type", "pattern", "behavior", "invert"});
  step.only("type", {"Split"});
  const bool invert = step.toggle("invert", false);
  step.only("behavior", {invert ? "Removed" : "Isolated"});
  Fields pattern = step.inner("pattern");
  pattern.nothing_but({"Regex"});
  const std::string expression = pattern.text("Regex");
  const auto known = find_pattern(expression);
  if (!known)
    pattern.refuse("pre_tokenizer.pretokenizers.pattern.Regex", expression,
                   "that of GPT-2, GPT-4, Llama 3 or Qwen2");
  return known.value_or(Pattern::whole);
}

// Split by an expression, then bytes to letters.
void read_sequence(Fields sequence, Definition& definition) {
  sequence.nothing_but({"type", "pretokenizers"});
  const json::Value& steps = sequence["pretokenizers"];
  if (steps.list() == nullptr || steps.list()->size() != 2) {
    sequence.refuse("pre_tokenizer.pretokenizers", steps, "a list of Split and ByteLevel");
    return;
  }
  definition.pattern = read_split(sequence.inner("pretokenizers", steps.list()->front()));
  Fields byte_level = sequence.inner("pretokenizers", steps.list()->back());
  check_byte_level(byte_level);
  byte_level.only("add_prefix_space", {false});
  byte_level.only("use_regex", {false});
}

void read_pre_tokenizer(Fields& document, Definition& definition) {
  Fields step = document.inner("pre_tokenizer");
  if (!step.fine()) return;
  if (step["type"] == "Sequence") return read_sequence(step, definition);
  check_byte_level(step);
  definition.prefix_space = step.toggle("add_prefix_space", true);
  definition.pattern = step.toggle("use_regex", true) ? Pattern::gpt2 : Pattern::whole;
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
  put_token(definition, *id, {content, of_the_model});
  definition.added.push_back({std::move(content), *id, token.toggle("normalized", true)});
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

void read_document(Fields document, Definition& definition) {
  document.nothing_but({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                        "post_processor", "decoder", "model"});
  document.only("truncation", {nullptr});
  document.only("padding", {nullptr});
  read_normalizer(document, definition);
  read_pre_tokenizer(document, definition);
  // The post-processor frames a sequence with special tokens, which is for those who make sequences.
  Fields decoder = document.inner("decoder");
  decoder.only("type", {"ByteLevel"});
  if (!document.fine()) return;
  const Ids ids = read_model(document.inner("model"), definition);
  if (document.fine()) read_added(document, ids, definition);
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
        .remedy("only byte-level BPE can be used here, as GPT-2 and Llama 3 have it");
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
