#include "learn/gguf/vocabulary.hpp"

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "learn/tokenizer/alphabet.hpp"
#include "learn/tokenizer/definition.hpp"

namespace tutti::gguf {
namespace {

using tokenizer::Definition;
using tokenizer::Pattern;

// What a token is, by its number in the format.
enum class Kind : std::int32_t { normal = 1, unknown = 2, control = 3, written = 4, unused = 5, byte = 6 };

// How llama.cpp calls the way in which a text is cut into words, and words that are tokens are merged or not;
// null if it has none for it.
const char* name_of(const Definition& definition) {
  if (definition.pattern == Pattern::cl100k) return definition.ignore_merges ? "llama-bpe" : "dbrx";
  if (definition.ignore_merges) return nullptr;
  if (definition.pattern == Pattern::gpt2) return "gpt-2";
  return definition.pattern == Pattern::qwen2 ? "qwen2" : nullptr;
}

// What llama.cpp would do to a text that this tokenizer does not; empty if it does the same.
std::string otherwise_there(const Definition& definition) {
  using tokenizer::Prefix;
  const bool of_bytes = definition.symbols == tokenizer::Symbols::bytes;
  const bool any_blank = definition.prefix == Prefix::none || definition.prefix == Prefix::always;
  if (of_bytes && name_of(definition) == nullptr)
    return "no way to cut text into words as this tokenizer does";
  if (of_bytes && definition.prefix != Prefix::none) return "no blank in front of a text of such a tokenizer";
  if (!of_bytes && !any_blank) return "no blank in front of a text only where there is none";
  if (!of_bytes && definition.pattern == Pattern::blank) return "no words in a text of such a tokenizer";
  if (definition.before.size() > 1 || definition.after.size() > 1)
    return "no more than one token before a text and one behind it";
  return "";
}

std::string with_blank_letters(std::string_view bytes) {
  std::string text;
  for (const char letter : bytes) {
    if (letter == ' ') {
      text += tokenizer::blank_letter;
    } else {
      text += letter;
    }
  }
  return text;
}

class Vocabulary {
 public:
  Vocabulary(const Definition& definition, std::int64_t vocabulary)
      : definition_(definition), of_bytes_(definition.symbols == tokenizer::Symbols::bytes) {
    names_.resize(static_cast<std::size_t>(vocabulary));
    kinds_.resize(names_.size(), static_cast<std::int32_t>(Kind::unused));
    for (std::size_t id = 0; id < names_.size(); ++id) name(id);
    for (const tokenizer::AddedToken& added : definition.added) {
      names_[added.id] = added.content;
      set(added.id, added.special ? Kind::control : Kind::written);
    }
    if (of_bytes_) return;
    for (std::size_t byte = 0; byte < tokenizer::byte_values; ++byte) {
      char text[] = "<0x00>";
      std::snprintf(text, sizeof text, "<0x%02zX>", byte);
      names_[definition.byte_tokens[byte]] = text;
      set(definition.byte_tokens[byte], Kind::byte);
    }
    for (std::size_t id = 0; id < names_.size(); ++id) {
      if (names_[id] == "<unk>") set(id, Kind::unknown);
    }
  }

  Result<> add_to(Fields& fields) const {
    fields.add("tokenizer.ggml.model", std::string_view(of_bytes_ ? "gpt2" : "llama"));
    if (const std::string otherwise = otherwise_there(definition_); !otherwise.empty())
      return invalid("llama.cpp knows " + otherwise)
          .remedy("export it with --format hf, or with --tokenizer none");
    if (of_bytes_) {
      fields.add("tokenizer.ggml.pre", std::string_view(name_of(definition_)));
    } else {
      fields.add("tokenizer.ggml.pre", std::string_view("default"));
      fields.add("tokenizer.ggml.add_space_prefix", definition_.prefix != tokenizer::Prefix::none);
    }
    fields.add("tokenizer.ggml.tokens", names_);
    fields.add("tokenizer.ggml.token_type", kinds_);
    if (of_bytes_) {
      add_merges(fields);
    } else {
      add_scores(fields);
    }
    const auto end = definition_.after.empty() ? definition_.end_of_text() : definition_.after.front();
    if (end) fields.add("tokenizer.ggml.eos_token_id", *end);
    if (!definition_.before.empty()) fields.add("tokenizer.ggml.bos_token_id", definition_.before.front());
    fields.add("tokenizer.ggml.add_bos_token", !definition_.before.empty());
    fields.add("tokenizer.ggml.add_eos_token", !definition_.after.empty());
    return {};
  }

 private:
  void set(std::size_t id, Kind kind) { kinds_[id] = static_cast<std::int32_t>(kind); }

  void name(std::size_t id) {
    if (id >= definition_.tokens.size() || definition_.tokens[id].bytes.empty()) {
      names_[id] = "[PAD" + std::to_string(id) + "]";
      return;
    }
    const std::string& bytes = definition_.tokens[id].bytes;
    names_[id] = of_bytes_ ? tokenizer::to_letters(bytes) : with_blank_letters(bytes);
    set(id, Kind::normal);
  }

  void add_merges(Fields& fields) const {
    std::vector<std::string> merges;
    merges.reserve(definition_.merges.size());
    for (const tokenizer::Merge& merge : definition_.merges)
      merges.push_back(names_[merge.left] + " " + names_[merge.right]);
    fields.add("tokenizer.ggml.merges", merges);
  }

  // There, the neighbours with the highest score are merged first: what was learnt earlier has the higher
  // one.
  void add_scores(Fields& fields) const {
    std::vector<float> scores(names_.size(), 0);
    auto next = static_cast<float>(0);
    for (const tokenizer::Merge& merge : definition_.merges) {
      if (scores[merge.result] == 0) scores[merge.result] = --next;
    }
    fields.add("tokenizer.ggml.scores", scores);
  }

  const Definition& definition_;
  bool of_bytes_;
  std::vector<std::string> names_;
  std::vector<std::int32_t> kinds_;
};

}  // namespace

Result<> add_vocabulary(std::string_view tokenizer_json, std::int64_t vocabulary, Fields& fields) {
  if (tokenizer_json.empty()) {
    fields.add("tokenizer.ggml.model", std::string_view("no_vocab"));
    return {};
  }
  auto definition = tokenizer::read_definition(tokenizer_json);
  if (!definition) return std::move(definition).error().within("the tokenizer");
  if (static_cast<std::int64_t>(definition->tokens.size()) > vocabulary) {
    return invalid("the tokenizer has " + std::to_string(definition->tokens.size()) +
                   " tokens, and the model " + std::to_string(vocabulary));
  }
  return Vocabulary(*definition, vocabulary).add_to(fields);
}

}  // namespace tutti::gguf
