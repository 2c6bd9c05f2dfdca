#include "base/json/write.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.hpp"

namespace tutti::json {
namespace {

// Numbers with more digits before the point, or more zeros behind it, are written with an exponent.
constexpr int whole_digits_max = 15;
constexpr int leading_zeros_max = 3;

class Writer {
 public:
  Writer(std::string& out, const Style& style) : out_(out), style_(style) {}

  void write(const Value& value, std::size_t depth) {
    if (const Object* object = value.object()) {
      write_all(*object, '{', '}', depth, [&](const Member& member) {
        write_text(member.key);
        out_ += style_.indent == 0 ? ":" : ": ";
        write(member.value, depth + 1);
      });
    } else if (const Array* list = value.list()) {
      write_all(*list, '[', ']', depth, [&](const Value& element) { write(element, depth + 1); });
    } else if (const std::string* text = value.text()) {
      write_text(*text);
    } else {
      write_simple(value);
    }
  }

 private:
  template <class Items, class WriteOne>
  void write_all(const Items& items, char open, char close, std::size_t depth, WriteOne write_one) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      first = false;
      new_line(depth + 1);
      write_one(item);
    }
    if (!first) new_line(depth);
    out_ += close;
  }
  void new_line(std::size_t depth) {
    if (style_.indent == 0) return;
    out_ += '\n';
    out_.append(depth * style_.indent, ' ');
  }

  void write_simple(const Value& value) {
    if (const auto boolean = value.boolean()) {
      out_ += *boolean ? "true" : "false";
    } else if (const auto count = value.count()) {
      out_ += std::to_string(*count);
    } else if (const auto whole = value.whole()) {
      out_ += std::to_string(*whole);
    } else if (const auto number = value.number()) {
      write_number(*number);
    } else {
      out_ += "null";
    }
  }

  // The fewest digits that read back the same, with a point or an exponent: a double stays one.
  void write_number(double number) {
    if (!std::isfinite(number)) {
      out_ += "null";
      return;
    }
    std::array<char, 32> shortest{};  // "-d.ddddde-xxx"
    char* const end =
        std::to_chars(shortest.begin(), shortest.end(), std::abs(number), std::chars_format::scientific).ptr;
    const std::string_view form(shortest.data(), static_cast<std::size_t>(end - shortest.data()));
    const std::size_t e = form.find('e');
    std::string digits;
    for (const char letter : form.substr(0, e)) {
      if (letter != '.') digits += letter;
    }
    int exponent = 0;
    std::from_chars(form.data() + e + (form[e + 1] == '+' ? 2 : 1), end, exponent);
    if (std::signbit(number)) out_ += '-';
    place_point(std::move(digits), exponent);
  }

  // The number is d.ddd times ten to the exponent.
  void place_point(std::string digits, int exponent) {
    if (exponent >= whole_digits_max || exponent < -leading_zeros_max - 1) {
      if (digits.size() > 1) digits.insert(1, ".");
      const std::string power = std::to_string(std::abs(exponent));
      out_ += digits + (exponent < 0 ? "e-" : "e+") + (power.size() == 1 ? "0" : "") + power;
      return;
    }
    const auto zeros = [](int count) { return std::string(static_cast<std::size_t>(count), '0'); };
    if (exponent < 0) {
      out_ += "0." + zeros(-exponent - 1) + digits;
      return;
    }
    digits += zeros(std::max(0, exponent + 2 - static_cast<int>(digits.size())));
    const int point = exponent + 1;
    out_ += digits.insert(static_cast<std::size_t>(point), ".");
  }

  void write_text(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      // Most letters stand for themselves and are put together.
      const auto plain = std::find_if_not(text.begin(), text.end(), is_plain);
      out_.append(text.begin(), plain);
      text.remove_prefix(static_cast<std::size_t>(plain - text.begin()));
      if (text.empty()) break;
      const std::size_t length = utf8_length(text);
      write_letter(length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length));
      text.remove_prefix(length == 0 ? 1 : length);
    }
    out_ += '"';
  }
  static bool is_plain(char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
  }

  // One code point that is not plain.
  void write_letter(std::string_view letter) {
    static constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
    static constexpr std::string_view escapes = "\"\\bfnrt";
    const std::size_t which = letter.size() == 1 ? escaped.find(letter[0]) : std::string_view::npos;
    if (which != std::string_view::npos) {
      out_ += '\\';
      out_ += escapes[which];
    } else if (style_.ascii || static_cast<unsigned char>(letter[0]) < 0x20) {
      write_code_point(code_point(letter));
    } else {
      out_ += letter;
    }
  }

  static std::uint32_t code_point(std::string_view letter) {
    if (letter.size() == 1) return static_cast<unsigned char>(letter[0]);
    std::uint32_t point = static_cast<unsigned char>(letter[0]) & (0xFFU >> (letter.size() + 1));
    for (const char next : letter.substr(1)) point = point << 6U | (static_cast<unsigned char>(next) & 0x3FU);
    return point;
  }
  void write_code_point(std::uint32_t point) {
    if (point < 0x10000) return write_unit(point);
    write_unit(0xD800 + ((point - 0x10000) >> 10U));
    write_unit(0xDC00 + ((point - 0x10000) & 0x3FFU));
  }
  void write_unit(std::uint32_t unit) {
    static constexpr std::string_view digits = "0123456789abcdef";
    out_ += "\\u";
    for (const unsigned shift : {12U, 8U, 4U, 0U}) out_ += digits[unit >> shift & 0xFU];
  }

  std::string& out_;
  const Style& style_;
};

}  // namespace

std::string write(const Value& value, const Style& style) {
  std::string out;
  Writer(out, style).write(value, 0);
  return out;
}

}  // namespace tutti::json
