#include "base/json/parse.hpp"

#include <algorithm>
#include <charconv>

#include "base/text.hpp"

namespace tutti::json {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// The letters of a code point that an escape named.
void append_utf8(std::string& text, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0U | point >> 6U);
    put(0x80U | (point & 0x3FU));
  } else if (point < 0x10000) {
    put(0xE0U | point >> 12U);
    put(0x80U | (point >> 6U & 0x3FU));
    put(0x80U | (point & 0x3FU));
  } else {
    put(0xF0U | point >> 18U);
    put(0x80U | (point >> 12U & 0x3FU));
    put(0x80U | (point >> 6U & 0x3FU));
    put(0x80U | (point & 0x3FU));
  }
}

// Each function reads one thing at `at_` and stands behind it; false once something was wrong. What is read
// into null is only looked at.
class Parser {
 public:
  Parser(std::string_view text, std::size_t values_max, const std::set<std::string>& booleans)
      : text_(text), values_left_(values_max), booleans_(booleans) {}

  Result<> run(Value* value) {
    skip_space();
    if (read_value(value, 0)) {
      skip_space();
      if (at_ == text_.size()) return {};
      wrong("there is something behind the value");
    }
    return invalid(std::string(problem_)).within("byte " + std::to_string(at_));
  }

 private:
  bool wrong(std::string_view problem) {
    problem_ = problem;
    return false;
  }
  // Nothing is 0, which no token begins with.
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char letter) {
    if (at_ == text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (next() == ' ' || next() == '\n' || next() == '\r' || next() == '\t') ++at_;
  }

  bool read_value(Value* value, std::size_t depth) {
    if (values_left_ == 0) return wrong(has_too_many_values);
    --values_left_;
    switch (next()) {
      case '{':
        return read_object(value, depth);
      case '[':
        return read_list(value, depth);
      case '"': {
        if (value == nullptr) return read_string(nullptr);
        std::string text;
        if (!read_string(&text)) return false;
        *value = std::move(text);
        return true;
      }
      case 't':
        return read_word("true", true, value);
      case 'f':
        return read_word("false", false, value);
      case 'n':
        return read_word("null", nullptr, value);
      default:
        return read_number(value);
    }
  }

  bool read_word(std::string_view word, Value meaning, Value* value) {
    if (!text_.substr(at_).starts_with(word)) return wrong("a value is expected");
    at_ += word.size();
    if (value != nullptr) *value = std::move(meaning);
    return true;
  }

  bool read_list(Value* value, std::size_t depth) {
    if (depth == depth_max) return wrong("it is nested too deeply");
    ++at_;
    Array list;
    skip_space();
    if (!take(']')) {
      do {
        skip_space();
        if (!read_value(value == nullptr ? nullptr : &list.emplace_back(), depth + 1)) return false;
        skip_space();
      } while (take(','));
      if (!take(']')) return wrong("',' or ']' is expected");
    }
    if (value != nullptr) *value = std::move(list);
    return true;
  }

  bool read_object(Value* value, std::size_t depth) {
    if (depth == depth_max) return wrong("it is nested too deeply");
    const std::size_t begin = at_++;
    std::vector<Member> members;
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        const auto place = static_cast<std::uint32_t>(members.size());
        if (!read_member(members.emplace_back(), value != nullptr, depth)) return false;
        members.back().place = place;
        skip_space();
      } while (take(','));
      if (!take('}')) return wrong("',' or '}' is expected");
    }
    std::ranges::sort(members, {}, &Member::key);
    if (std::ranges::adjacent_find(members, {}, &Member::key) != members.end()) {
      at_ = begin;
      return wrong(key_is_there_twice);
    }
    if (value != nullptr) *value = Object(std::move(members));
    return true;
  }

  bool read_member(Member& member, bool with_value, std::size_t depth) {
    if (next() != '"') return wrong("a key in quotes is expected");
    if (!read_string(&member.key)) return false;
    skip_space();
    if (!take(':')) return wrong("':' is expected");
    skip_space();
    const bool is_word = next() == 't' || next() == 'f' || next() == 'n';
    if (!is_word && booleans_.contains(member.key)) return wrong("true or false is expected, without quotes");
    return read_value(with_value ? &member.value : nullptr, depth + 1);
  }

  bool read_string(std::string* text) {
    ++at_;
    for (;;) {
      // Most letters stand for themselves and are taken together.
      const std::size_t begin = at_;
      while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
      if (text != nullptr) *text += text_.substr(begin, at_ - begin);
      if (at_ == text_.size()) return wrong("a text has no end");
      if (take('"')) return true;
      if (take('\\')) {
        if (!read_escape(text)) return false;
      } else if (static_cast<unsigned char>(next()) < 0x20) {
        return wrong("a text holds a control character that is not escaped");
      } else {
        const std::size_t length = utf8_length(text_.substr(at_));
        if (length == 0) return wrong("a text is not valid UTF-8");
        if (text != nullptr) *text += text_.substr(at_, length);
        at_ += length;
      }
    }
  }
  static bool is_plain(char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
  }

  bool read_escape(std::string* text) {
    static constexpr std::string_view escapes = "\"\\/bfnrt";
    static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    if (take('u')) return read_code_point(text);
    const std::size_t which = escapes.find(next());
    if (at_ == text_.size() || which == std::string_view::npos) return wrong("an escape is not known");
    ++at_;
    if (text != nullptr) *text += meanings[which];
    return true;
  }

  bool read_code_point(std::string* text) {
    std::uint32_t point = 0;
    if (!read_hex4(point)) return false;
    const auto is_low = [](std::uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; };
    if (is_low(point)) return wrong("half of a surrogate pair is missing");
    if (point >= 0xD800 && point < 0xDC00) {
      std::uint32_t low = 0;
      if (!take('\\') || !take('u')) return wrong("half of a surrogate pair is missing");
      if (!read_hex4(low)) return false;
      if (!is_low(low)) return wrong("half of a surrogate pair is missing");
      point = 0x10000 + ((point - 0xD800) << 10U) + (low - 0xDC00);
    }
    if (text != nullptr) append_utf8(*text, point);
    return true;
  }

  bool read_hex4(std::uint32_t& unit) {
    const std::string_view digits = text_.substr(at_, 4);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (digits.size() < 4 || parsed.ptr != digits.data() + 4)
      return wrong("four hexadecimal digits are expected");
    at_ += 4;
    return true;
  }

  bool read_number(Value* value) {
    const std::size_t begin = at_;
    const bool negative = take('-');
    if (!is_digit(next())) {
      at_ = begin;
      return wrong("a value is expected");
    }
    if (!take('0')) skip_digits();
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (!is_digit(next())) return wrong("a digit is expected");
      skip_digits();
    }
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      if (!is_digit(next())) return wrong("a digit is expected");
      skip_digits();
    }
    const std::string_view digits = text_.substr(begin, at_ - begin);
    if (whole && (negative ? convert<std::int64_t>(digits, value) : convert<std::uint64_t>(digits, value)))
      return true;
    if (convert<double>(digits, value)) return true;
    at_ = begin;
    return wrong("the number is out of range");
  }
  void skip_digits() {
    while (is_digit(next())) ++at_;
  }
  template <class Number>
  static bool convert(std::string_view digits, Value* value) {
    Number number{};
    if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc()) return false;
    if (value != nullptr) *value = number;
    return true;
  }

  std::string_view text_;
  std::size_t values_left_;
  const std::set<std::string>& booleans_;
  std::size_t at_ = 0;
  std::string_view problem_;
};

Result<> read_text(std::string_view text, std::size_t values_max, const std::set<std::string>& booleans,
                   Value* value) {
  if (text.size() > text_bytes_max)
    return invalid("it has more than " + std::to_string(text_bytes_max) + " bytes");
  return Parser(text, values_max, booleans).run(value);
}

}  // namespace

Result<Value> parse(std::string_view text) {
  Value value;
  if (auto read = read_text(text, text_bytes_max, {}, &value); !read) return std::move(read).error();
  return value;
}

Result<> scan(std::string_view text, std::size_t values_max, const std::set<std::string>& booleans) {
  return read_text(text, values_max, booleans, nullptr);
}

}  // namespace tutti::json
