#include "serve/chat/lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "serve/chat/letters.hpp"

namespace tutti::serve::chat {
namespace {

bool is_space(char letter) { return std::string_view(" \t\n\r\f\v").find(letter) != std::string_view::npos; }
bool is_figure(char letter) { return letter >= '0' && letter <= '9'; }
bool begins_name(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_';
}

// Longer signs first.
constexpr std::array<std::string_view, 29> signs{"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/",
                                                 "%",  "~",  "(",  ")",  "[",  "]",  "{", "}", "|", ".",
                                                 ",",  ":",  "=",  "<",  ">",  ";",  "&", "^", "!"};

// Windows' line ends are read as others, and the last one is not part of the text.
std::string with_plain_line_ends(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\r') {
      plain += '\n';
      if (at + 1 < text.size() && text[at + 1] == '\n') ++at;
    } else {
      plain += text[at];
    }
  }
  if (plain.ends_with('\n')) plain.pop_back();
  return plain;
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  Result<std::vector<Word>> run() {
    while (at_ < text_.size() && problem_.empty()) read_text();
    if (!problem_.empty()) return invalid(problem_).within("line " + std::to_string(line_));
    put(Word::Kind::end, "");
    return std::move(words_);
  }

 private:
  bool sees(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }
  void wrong(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  void put(Word::Kind kind, std::string text) { words_.push_back({kind, std::move(text), line_}); }
  void skip(std::size_t bytes) {
    const std::size_t end = std::min(at_ + bytes, text_.size());
    for (; at_ < end; ++at_) {
      if (text_[at_] == '\n') ++line_;
    }
  }
  void skip_space() {
    std::size_t end = at_;
    while (end < text_.size() && is_space(text_[end])) ++end;
    skip(end - at_);
  }

  static bool is_tag(std::string_view two) { return two == "{{" || two == "{%" || two == "{#"; }

  // Up to the next tag, and the tag.
  void read_text() {
    std::size_t tag = at_;
    while (tag < text_.size() && !is_tag(std::string_view(text_).substr(tag, 2))) ++tag;
    std::string text = text_.substr(at_, tag - at_);
    if (tag == text_.size()) {
      if (!text.empty()) put(Word::Kind::text, std::move(text));
      at_ = tag;
      return;
    }
    const char kind = text_[tag + 1];
    const char mark = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    strip_before_tag(text, kind, mark);
    if (!text.empty()) put(Word::Kind::text, std::move(text));
    skip(tag - at_ + 2);
    if (mark == '-' || mark == '+') skip(1);
    if (kind == '#') {
      read_comment();
    } else {
      read_tag(kind == '{');
    }
  }

  // lstrip_blocks: blanks that stand alone before a tag on its line; with '-' all white space.
  void strip_before_tag(std::string& text, char kind, char mark) const {
    const auto bare_from = [&](std::size_t from) {
      return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), is_space);
    };
    if (mark == '-') {
      while (!text.empty() && is_space(text.back())) text.pop_back();
    } else if (mark != '+' && kind != '{') {
      const std::size_t line_begin = text.rfind('\n') + 1;  // 0 without one
      if ((line_begin > 0 || line_starts_) && bare_from(line_begin)) text.resize(line_begin);
    }
  }

  // What stands behind a tag's end: trim_blocks takes one newline, '-' all white space.
  void end_tag(char mark, bool takes_newline) {
    const std::size_t begin = at_;
    if (mark == '-') {
      skip_space();
    } else if (mark != '+' && takes_newline && sees("\n")) {
      skip(1);
    }
    line_starts_ = at_ > begin && text_[at_ - 1] == '\n';
  }

  void read_comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) return wrong("a comment has no end: '#}' is missing");
    const char mark = end > at_ ? text_[end - 1] : '\0';
    skip(end - at_ + 2);
    end_tag(mark, true);
  }

  void read_tag(bool output) {
    const std::size_t begin_line = line_;
    put(output ? Word::Kind::output_begin : Word::Kind::block_begin, "");
    if (!output && read_raw()) return;
    brackets_ = 0;
    const std::string_view close = output ? "}}" : "%}";
    while (problem_.empty()) {
      skip_space();
      if (at_ == text_.size()) {
        line_ = begin_line;
        return wrong(std::string("a tag has no end: '") + std::string(close) + "' is missing");
      }
      if (brackets_ == 0) {
        const char mark = sees("-") || sees("+") ? text_[at_] : '\0';
        if (std::string_view(text_).substr(at_ + (mark == '\0' ? 0 : 1)).starts_with(close)) {
          skip(mark == '\0' ? 2 : 3);
          put(output ? Word::Kind::output_end : Word::Kind::block_end, "");
          return end_tag(mark, !output);
        }
      }
      read_word();
    }
  }

  // {% raw %} … {% endraw %}: all of it is text.
  bool read_raw() {
    const auto tag_end = [&](std::size_t from,
                             std::string_view name) -> std::optional<std::pair<std::size_t, char>> {
      while (from < text_.size() && is_space(text_[from])) ++from;
      if (!std::string_view(text_).substr(from).starts_with(name)) return std::nullopt;
      from += name.size();
      while (from < text_.size() && is_space(text_[from])) ++from;
      const char mark =
          from < text_.size() && (text_[from] == '-' || text_[from] == '+') ? text_[from] : '\0';
      if (mark != '\0') ++from;
      if (!std::string_view(text_).substr(from).starts_with("%}")) return std::nullopt;
      return std::pair(from + 2, mark);
    };
    const auto begin = tag_end(at_, "raw");
    if (!begin) return false;
    words_.pop_back();
    skip(begin->first - at_);
    end_tag(begin->second, false);
    for (std::size_t tag = text_.find("{%", at_); tag != std::string::npos; tag = text_.find("{%", tag + 2)) {
      const char mark = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      const auto end = tag_end(tag + (mark == '-' || mark == '+' ? 3 : 2), "endraw");
      if (!end) continue;
      std::string text = text_.substr(at_, tag - at_);
      strip_before_tag(text, '%', mark);
      if (!text.empty()) put(Word::Kind::text, std::move(text));
      skip(end->first - at_);
      end_tag(end->second, true);
      return true;
    }
    wrong("'raw' has no 'endraw'");
    return true;
  }

  void read_word() {
    const char first = text_[at_];
    if (begins_name(first)) return read_name();
    if (is_figure(first)) return read_number();
    if (first == '"' || first == '\'') return read_string(first);
    for (const std::string_view sign : signs) {
      if (!sees(sign)) continue;
      if (sign == "(" || sign == "[" || sign == "{") ++brackets_;
      if ((sign == ")" || sign == "]" || sign == "}") && brackets_ > 0) --brackets_;
      put(Word::Kind::sign, std::string(sign));
      return skip(sign.size());
    }
    wrong("a letter is not known inside of a tag: byte " + std::to_string(static_cast<unsigned char>(first)));
  }

  void read_name() {
    std::size_t end = at_;
    while (end < text_.size() && (begins_name(text_[end]) || is_figure(text_[end]))) ++end;
    put(Word::Kind::name, text_.substr(at_, end - at_));
    skip(end - at_);
  }

  void read_number() {
    std::size_t end = at_;
    std::string digits;
    bool whole = true;
    const auto take_digits = [&] {
      for (; end < text_.size() && (is_figure(text_[end]) || text_[end] == '_'); ++end) {
        if (text_[end] != '_') digits += text_[end];
      }
    };
    take_digits();
    if (end + 1 < text_.size() && text_[end] == '.' && is_figure(text_[end + 1])) {
      whole = false;
      digits += text_[end++];
      take_digits();
    }
    const std::size_t sign =
        end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+') ? 1 : 0;
    const bool exponent = end < text_.size() && (text_[end] == 'e' || text_[end] == 'E');
    if (exponent && end + 1 + sign < text_.size() && is_figure(text_[end + 1 + sign])) {
      whole = false;
      digits += "e";
      if (sign == 1) digits += text_[end + 1];
      end += 1 + sign;
      take_digits();
    }
    std::int64_t value = 0;
    if (whole && std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc())
      return wrong("a number is out of range: " + digits.substr(0, 40));
    put(whole ? Word::Kind::whole : Word::Kind::number, digits);
    skip(end - at_);
  }

  void read_string(char quote) {
    std::size_t at = at_ + 1;
    std::string value;
    while (at < text_.size() && text_[at] != quote) {
      if (text_[at] == '\\' && at + 1 < text_.size()) {
        at = read_escape(at + 1, value);
      } else {
        value += text_[at++];
      }
    }
    if (at >= text_.size()) return wrong("a string has no end");
    put(Word::Kind::string, std::move(value));
    skip(at + 1 - at_);
  }

  // Stands behind the backslash; gives the place behind the escape. What Python does not know stays as it is.
  std::size_t read_escape(std::size_t at, std::string& value) {
    static constexpr std::string_view escapes = "\\'\"abfnrtv";
    static constexpr std::string_view meanings = "\\'\"\a\b\f\n\r\t\v";
    const char letter = text_[at];
    const std::size_t which = escapes.find(letter);
    const std::size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (which != std::string_view::npos) {
      value += meanings[which];
    } else if (digits > 0) {
      const char* const begin = text_.data() + at + 1;
      const char* const end = begin + std::min(digits, text_.size() - at - 1);
      std::uint32_t code = 0;
      const auto parsed = std::from_chars(begin, end, code, 16);
      if (parsed.ptr != begin + digits || !append_code_point(value, code))
        wrong("an escape of a string is not known");
      return at + 1 + digits;
    } else if (letter != '\n') {
      value += '\\';
      value += letter;
    }
    return at + 1;
  }

  std::string text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t brackets_ = 0;  // open ones: inside of them '}}' ends two maps, and no tag
  bool line_starts_ = true;   // nothing stands before at_ on its line
  std::string problem_;
  std::vector<Word> words_;
};

}  // namespace

Result<std::vector<Word>> to_words(std::string_view text) { return Lexer(with_plain_line_ends(text)).run(); }

}  // namespace tutti::serve::chat
