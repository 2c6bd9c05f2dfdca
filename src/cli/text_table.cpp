#include "cli/text_table.hpp"

#include <algorithm>
#include <cstdio>

#include "base/visible.hpp"

namespace tutti::cli {

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

void TextTable::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = visible_line(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t at = 0; at < row.size(); ++at) {
      line += row[at];
      if (at + 1 < row.size()) line.append(widths[at] - row[at].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tutti::cli
