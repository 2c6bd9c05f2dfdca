#include "learn/tokenizer/nfc.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "learn/tokenizer/nfc_table.hpp"
#include "learn/tokenizer/unicode.hpp"

namespace tutti::tokenizer {
namespace {

constexpr char32_t first_that_may_change = 0x300;  // before it, nothing combines

// Hangul syllables are numbered by their parts: a leading consonant, a vowel, and possibly a trailing
// consonant.
constexpr char32_t syllable_first = 0xAC00;
constexpr char32_t leading_first = 0x1100;
constexpr char32_t vowel_first = 0x1161;
constexpr char32_t trailing_none = 0x11A7;
constexpr char32_t leadings = 19;
constexpr char32_t vowels = 21;
constexpr char32_t trailings = 28;  // with "none"

bool is_within(char32_t code, char32_t first, char32_t count) {
  return code >= first && code - first < count;
}
bool is_syllable(char32_t code) { return is_within(code, syllable_first, leadings * vowels * trailings); }

unsigned combining_class(char32_t code) {
  if (code < first_that_may_change) return 0;
  const auto after =
      std::upper_bound(combining_ranges.begin(), combining_ranges.end(), code,
                       [](char32_t wanted, const CombiningRange& range) { return wanted < range.first; });
  if (after == combining_ranges.begin() || code > std::prev(after)->last) return 0;
  return std::prev(after)->combining_class;
}

template <class Row>
const Row* find_row(std::span<const Row> rows, char32_t code) {
  const auto found = std::lower_bound(rows.begin(), rows.end(), code,
                                      [](const Row& row, char32_t wanted) { return row.code < wanted; });
  return found != rows.end() && found->code == code ? &*found : nullptr;
}

bool is_never_composed(char32_t code) {
  return std::binary_search(never_composed.begin(), never_composed.end(), code);
}

// ---- taking apart

void take_apart(char32_t code, std::vector<char32_t>& out) {
  if (is_syllable(code)) {
    const char32_t number = code - syllable_first;
    out.push_back(leading_first + number / (vowels * trailings));
    out.push_back(vowel_first + number / trailings % vowels);
    if (number % trailings != 0) out.push_back(trailing_none + number % trailings);
  } else if (const auto* replacement = find_row(replacements, code)) {
    take_apart(replacement->by, out);
  } else if (const auto* composition = find_row(compositions, code)) {
    take_apart(composition->first, out);
    take_apart(composition->second, out);
  } else {
    out.push_back(code);
  }
}

std::vector<char32_t> all_apart(std::string_view text) {
  std::vector<char32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Symbol symbol = symbol_at(text, at);
    take_apart(symbol.code, codes);
    at += symbol.bytes;
  }
  return codes;
}

// Marks after a letter in the order of their classes.
void sort_marks(std::vector<char32_t>& codes) {
  const auto is_mark = [](char32_t code) { return combining_class(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end,
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

// ---- putting together

bool by_parts(const Composition& a, const Composition& b) {
  return std::tie(a.first, a.second) < std::tie(b.first, b.second);
}

const std::vector<Composition>& composable() {
  static const auto sorted = [] {
    std::vector<Composition> rows;
    std::copy_if(compositions.begin(), compositions.end(), std::back_inserter(rows),
                 [](const Composition& row) { return !is_never_composed(row.code); });
    std::sort(rows.begin(), rows.end(), by_parts);
    return rows;
  }();
  return sorted;
}

std::optional<char32_t> put_together(char32_t first, char32_t second) {
  if (is_within(first, leading_first, leadings) && is_within(second, vowel_first, vowels))
    return syllable_first + ((first - leading_first) * vowels + (second - vowel_first)) * trailings;
  const bool open = is_syllable(first) && (first - syllable_first) % trailings == 0;
  if (open && is_within(second, trailing_none + 1, trailings - 1)) return first + (second - trailing_none);
  const auto& rows = composable();
  const Composition wanted{0, first, second};
  const auto found = std::lower_bound(rows.begin(), rows.end(), wanted, by_parts);
  if (found == rows.end() || found->first != first || found->second != second) return std::nullopt;
  return found->code;
}

// A mark joins the letter before it unless a mark of its own class stands in between.
std::vector<char32_t> all_together(const std::vector<char32_t>& codes) {
  std::vector<char32_t> out;
  out.reserve(codes.size());
  std::optional<std::size_t> letter;
  unsigned class_before = 0;
  for (const char32_t code : codes) {
    const unsigned own_class = combining_class(code);
    if (letter && (out.size() == *letter + 1 || class_before < own_class)) {
      if (const auto composed = put_together(out[*letter], code)) {
        out[*letter] = *composed;
        continue;
      }
    }
    if (own_class == 0) letter = out.size();
    class_before = own_class;
    out.push_back(code);
  }
  return out;
}

// ---- looking

// What may join the code before it, besides marks.
bool may_join(char32_t code) {
  static const auto seconds = [] {
    std::vector<char32_t> codes;
    for (const auto& row : composable()) codes.push_back(row.second);
    std::sort(codes.begin(), codes.end());
    return codes;
  }();
  return is_within(code, vowel_first, vowels) || is_within(code, trailing_none + 1, trailings - 1) ||
         std::binary_search(seconds.begin(), seconds.end(), code);
}

bool may_change(char32_t code) {
  if (code < first_that_may_change || code > code_point_max) return false;
  return combining_class(code) != 0 || find_row(replacements, code) != nullptr || is_never_composed(code) ||
         may_join(code);
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Symbol symbol = symbol_at(text, at);
    if (may_change(symbol.code)) return false;
    at += symbol.bytes;
  }
  return true;
}

std::string to_nfc(std::string_view text) {
  auto codes = all_apart(text);
  sort_marks(codes);
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : all_together(codes)) append_symbol(out, code);
  return out;
}

}  // namespace tutti::tokenizer
