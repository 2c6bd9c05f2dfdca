#include "common/tokenizers.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/json/value.hpp"
#include "base/json/write.hpp"
#include "learn/tokenizer/train.hpp"
#include "learn/tokenizer/unicode.hpp"

namespace tutti::bench {
namespace {

using json::Value;

constexpr std::string_view sentences =
    "The quick brown fox jumps over the lazy dog, and the dog does not mind: it has seen the fox before. "
    "In 2024 there were 365 days and then one more; in 2025 there were 365 again. We're sure, they've said "
    "it, I'll ask. Über den Wölken müssen größere Räume sein, schöner als die Straße und der Fluß. "
    "The end of the line is where another one begins.\n\nThen the next one begins, and the one after it.\n"
    "    if (there is something) return there;\n    else return nothing;\n";
constexpr std::int64_t learned_tokens = 420;
constexpr std::size_t learned_pieces = 130;  // of a tokenizer of code points, behind bytes and letters
constexpr std::string_view blank_letter = "▁";

Value parsed(std::string_view text) {
  auto value = json::parse(text);
  TUTTI_CHECK(value.ok(), "it is written here");
  return std::move(*value);
}

Value added(std::string_view content, std::size_t id, bool special) {
  return json::Object{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                      {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// The text behind this token, and before another one where there is one.
Value frame(std::string_view before, std::size_t id) {
  const json::Object special{{"SpecialToken", json::Object{{"id", before}, {"type_id", 0}}}};
  const json::Object text{{"Sequence", json::Object{{"id", "A"}, {"type_id", 0}}}};
  const json::Object token{{"id", before}, {"ids", json::Array{id}}, {"tokens", json::Array{before}}};
  return json::Object{{"type", "TemplateProcessing"},
                      {"single", json::Array{special, text}},
                      {"pair", json::Array{}},
                      {"special_tokens", json::Object{{std::string(before), token}}}};
}

Value learned() {
  tokenizer::Trainer trainer;
  trainer.add(sentences);
  const auto made = trainer.train(learned_tokens);
  TUTTI_CHECK(made.ok(), "nobody interrupts it");
  return parsed(made->json());
}

// As GPT-4, Llama 3 and Qwen have it: another way to cut words, and more tokens that are found as written.
Value of_bytes(std::string_view family) {
  Value file = learned();
  if (family == "gpt2") return file;
  const bool of_qwen = family.starts_with("qwen");
  const std::string digits = of_qwen ? R"(\p{N})" : R"(\p{N}{1,3})";
  const std::string expression = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + digits +
                                 R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json::Object split{{"type", "Split"},
                           {"pattern", json::Object{{"Regex", expression}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  Value bytes = file["pre_tokenizer"];
  bytes["use_regex"] = false;
  file["pre_tokenizer"] = json::Object{{"type", "Sequence"}, {"pretokenizers", json::Array{split, bytes}}};
  json::Array& tokens = *file["added_tokens"].list();
  const std::size_t next = *tokens.back()["id"].count() + 1;
  if (of_qwen) {
    file["normalizer"] = json::Object{{"type", "NFC"}};
    tokens.push_back(added("<|im_start|>", next, true));
    tokens.push_back(added("<|im_end|>", next + 1, true));
    tokens.push_back(added("<think>", next + 2, false));
  } else {
    file["model"]["ignore_merges"] = family == "llama3";
    tokens.push_back(added("<|begin_of_text|>", next, true));
    tokens.push_back(added("<|eot_id|>", next + 1, true));
    file["post_processor"] = frame("<|begin_of_text|>", next);
  }
  return file;
}

std::vector<std::string> symbols_of(std::string_view text) {
  std::vector<std::string> symbols;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = tokenizer::symbol_at(text, at).bytes;
    const std::string symbol(text.substr(at, bytes));
    symbols.push_back(symbol == " " ? std::string(blank_letter) : symbol);
    at += bytes;
  }
  return symbols;
}

// The neighbours that occur most often become one, again and again; of equally many the first in order.
std::vector<std::string> learn_pieces(std::vector<std::string> text) {
  std::vector<std::string> pieces;
  while (pieces.size() < learned_pieces) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (std::size_t at = 1; at < text.size(); ++at) {
      const bool crosses = text[at].starts_with(blank_letter) && !text[at - 1].ends_with(blank_letter);
      if (!crosses && text[at] != "\n" && text[at - 1] != "\n") ++counts[{text[at - 1], text[at]}];
    }
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto [left, right] = best->first;
    std::vector<std::string> merged;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const bool both = at + 1 < text.size() && text[at] == left && text[at + 1] == right;
      merged.push_back(both ? left + right : text[at]);
      if (both) ++at;
    }
    text = std::move(merged);
    if (std::find(pieces.begin(), pieces.end(), left + right) == pieces.end()) pieces.push_back(left + right);
  }
  return pieces;
}

// As SentencePiece's models are written for Hugging Face: a piece is made of any two that are pieces.
Value of_code_points() {
  const auto text = symbols_of(sentences);
  const std::set<std::string> letters(text.begin(), text.end());
  std::vector<std::string> all{"<unk>", "<s>", "</s>"};
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    all.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  for (const std::string& letter : letters)
    if (letter != "\n") all.push_back(letter);
  const auto pieces = learn_pieces(text);
  std::set<std::string> known(all.begin() + 259, all.end());
  known.insert(pieces.begin(), pieces.end());
  json::Array merges;
  for (const std::string& piece : pieces) {
    for (std::size_t at = 1; at < piece.size(); ++at) {
      const std::string left = piece.substr(0, at), right = piece.substr(at);
      if (known.contains(left) && known.contains(right)) merges.push_back(json::Array{left, right});
    }
    all.push_back(piece);
  }
  std::vector<json::Member> vocabulary;
  for (std::size_t id = 0; id < all.size(); ++id) vocabulary.push_back({all[id], id});
  Value file = parsed(
      R"({"version":"1.0","truncation":null,"padding":null,"normalizer":{"type":"Sequence","normalizers":[)"
      R"({"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},)"
      R"("pre_tokenizer":null,"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
      R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}})");
  file["model"] = json::Object{{"type", "BPE"},
                               {"unk_token", "<unk>"},
                               {"fuse_unk", true},
                               {"byte_fallback", true},
                               {"vocab", json::Object(std::move(vocabulary))},
                               {"merges", std::move(merges)}};
  file["added_tokens"] = json::Array{added("<unk>", 0, true), added("<s>", 1, true), added("</s>", 2, true)};
  file["post_processor"] = frame("<s>", 1);
  return file;
}

}  // namespace

std::string tokenizer_of(std::string_view family) {
  const bool of_pieces = family == "llama" || family == "mistral";
  return json::write(of_pieces ? of_code_points() : of_bytes(family));
}

const std::vector<std::string>& odd_texts() {
  static const std::vector<std::string> texts{
      "The quick brown fox",
      "a",
      " begins with a blank",
      "  two blanks,   three,    four ",
      "ends with blanks   ",
      "\ttabs\tand\n\n\nline ends\r\n  \n x",
      "1 12 123 1234 12345 3.14159 0x1F 2024-11-19",
      "Größe, Straße, über, naïve café, ÄÖÜ",
      "we're THEY'VE I'll it's o'clock 'd",
      "日本語 中文 한국어 العربية हिन्दी",
      "🙂 👍🏽 👨‍👩‍👧 flags 🇩🇪",
      "if (a<=b) { return x[i++]; } // done -> ok?!",
      "<s>[INST] hello </s> world<|endoftext|>again<|im_start|>user\nhi<|im_end|>\n<think>so</think>",
      "<|begin_of_text|>one<|eot_id|> two <|eot_id|>three",
      "<unk> <0x0A> [PAD300] ▁ Ġ",
      "thethethethe aaaaaaaaaaaaaaaaaaaa \u00a0\u2003 wide",
      "supercalifragilisticexpialidocious",
  };
  return texts;
}

}  // namespace tutti::bench
