#include "cli/text_table.hpp"

#include <algorithm>
#include <cstdio>

#include "base/visible.hpp"

namespace tutti::cli {
namespace {

constexpr std::size_t last_letters_min = 20;

bool begins_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_letter));
}

// Its first letters and "...", if it has more than fit.
std::string cut(const std::string& text, std::size_t letters_max) {
  if (letters(text) <= letters_max) return text;
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size(); ++end) {
    if (begins_letter(text[end]) && count++ == letters_max - 3) break;
  }
  return text.substr(0, end) + "...";
}

}  // namespace

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

void TextTable::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = visible_line(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(std::size_t columns) const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], letters(row[at]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    std::size_t used = 0;
    for (std::size_t at = 0; at + 1 < row.size(); ++at) {
      line += row[at] + std::string(widths[at] - letters(row[at]) + 2, ' ');
      used += widths[at] + 2;
    }
    const std::size_t room = std::max(columns, used + last_letters_min) - used;
    line += columns == 0 ? row.back() : cut(row.back(), room);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tutti::cli
