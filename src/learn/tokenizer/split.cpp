#include "learn/tokenizer/split.hpp"

#include <array>

#include "base/check.hpp"
#include "learn/tokenizer/unicode.hpp"

namespace tutti::tokenizer {
namespace {

struct Known {
  std::string_view expression;
  Pattern pattern;
};
constexpr std::array<Known, 3> known_patterns{{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Pattern::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Pattern::cl100k},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Pattern::qwen2},
}};

constexpr std::size_t cl100k_digits_max = 3;
constexpr std::size_t qwen2_digits_max = 1;
constexpr char32_t long_s = 0x17F;  // ſ is another lower case of S

bool is_line_end(char32_t code) { return code == U'\n' || code == U'\r'; }

bool is_kind_at(std::string_view text, std::size_t at, Kind kind) {
  return at < text.size() && kind_of(symbol_at(text, at).code) == kind;
}

// Where the symbols of this kind end that begin at `at`, or the first `most` of them.
std::size_t end_of_run(std::string_view text, std::size_t at, Kind kind,
                       std::size_t most = std::string_view::npos) {
  for (; most > 0 && at < text.size(); --most) {
    const Symbol symbol = symbol_at(text, at);
    if (kind_of(symbol.code) != kind) break;
    at += symbol.bytes;
  }
  return at;
}

char32_t folded(char32_t code) {
  if (code == long_s) return U's';
  return code >= U'A' && code <= U'Z' ? code - U'A' + U'a' : code;
}

// 's 't 're 've 'm 'll 'd: the bytes of the one that the text begins with, or 0.
std::size_t contraction(std::string_view text, bool any_case) {
  if (text.size() < 2 || text.front() != '\'') return 0;
  const auto letter_at = [&](std::size_t at) {
    if (at >= text.size()) return Symbol{0, 0};
    const Symbol symbol = symbol_at(text, at);
    return Symbol{any_case ? folded(symbol.code) : symbol.code, symbol.bytes};
  };
  const Symbol first = letter_at(1);
  const std::size_t end = 1 + first.bytes;
  const char32_t second = letter_at(end).code;
  switch (first.code) {
    case U's':
    case U't':
    case U'm':
    case U'd':
      return end;
    case U'r':
    case U'v':
      return second == U'e' ? end + 1 : 0;
    case U'l':
      return second == U'l' ? end + 1 : 0;
    default:
      return 0;
  }
}

// \s+(?!\S)|\s+ : blanks leave the last of them to the word behind them.
std::size_t blanks(std::string_view text) {
  const std::size_t end = end_of_run(text, 0, Kind::space);
  if (end == text.size()) return end;
  const std::size_t last = end - symbol_before(text, end).bytes;
  return last == 0 ? end : last;
}

std::size_t gpt2_word(std::string_view text) {
  if (const std::size_t bytes = contraction(text, false)) return bytes;
  const std::size_t begin = text.front() == ' ' ? 1 : 0;
  for (const Kind kind : {Kind::letter, Kind::number, Kind::other}) {
    if (is_kind_at(text, begin, kind)) return end_of_run(text, begin, kind);
  }
  return blanks(text);
}

// \s*[\r\n]+ : blanks up to the last line end among them, 0 without one.
std::size_t lines(std::string_view text) {
  const std::size_t end = end_of_run(text, 0, Kind::space);
  return text.substr(0, end).find_last_of("\r\n") + 1;
}

std::size_t cl100k_word(std::string_view text, std::size_t digits_max) {
  if (const std::size_t bytes = contraction(text, true)) return bytes;
  const Symbol first = symbol_at(text, 0);
  const Kind kind = kind_of(first.code);
  if (kind == Kind::letter) return end_of_run(text, 0, Kind::letter);
  if (kind == Kind::number) return end_of_run(text, 0, Kind::number, digits_max);
  if (!is_line_end(first.code) && is_kind_at(text, first.bytes, Kind::letter))
    return end_of_run(text, first.bytes, Kind::letter);
  const std::size_t begin = text.front() == ' ' ? 1 : 0;
  if (is_kind_at(text, begin, Kind::other)) {
    const std::size_t end = end_of_run(text, begin, Kind::other);
    return std::min(text.find_first_not_of("\r\n", end), text.size());
  }
  const std::size_t end = lines(text);
  return end > 0 ? end : blanks(text);
}

}  // namespace

std::optional<Pattern> find_pattern(std::string_view expression) {
  for (const Known& known : known_patterns) {
    if (known.expression == expression) return known.pattern;
  }
  return std::nullopt;
}

std::size_t first_word(Pattern pattern, std::string_view text) {
  switch (pattern) {
    case Pattern::whole:
      return text.size();
    case Pattern::gpt2:
      return gpt2_word(text);
    case Pattern::cl100k:
      return cl100k_word(text, cl100k_digits_max);
    case Pattern::qwen2:
      return cl100k_word(text, qwen2_digits_max);
    case Pattern::blank:
      return std::min(text.find(' ', 1), text.size());
    case Pattern::blank_run:
      return std::min(text.find(' ', std::min(text.find_first_not_of(' '), text.size())), text.size());
  }
  TUTTI_CHECK(false, "no pattern");
  return text.size();
}

// A single line end between two symbols that are no blanks is a word of its own, or ends one.
bool may_cut_behind(std::string_view text, std::size_t line_end) {
  if (line_end == 0 || line_end + 1 >= text.size() || text[line_end] != '\n') return false;
  return kind_of(symbol_before(text, line_end).code) != Kind::space &&
         !is_kind_at(text, line_end + 1, Kind::space);
}

}  // namespace tutti::tokenizer
