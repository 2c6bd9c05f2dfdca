// Rows and columns for people: each column as wide as its widest cell, the last one as long as it is.
#pragma once

#include <string>
#include <vector>

namespace tutti::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> titles) : rows_{std::move(titles)} {}
  // What a terminal would obey in a cell is shown instead.
  void add(std::vector<std::string> cells);
  // `columns`: a line that would be longer is cut in its last cell, of which some letters stay; 0: none is.
  std::string text(std::size_t columns = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Four digits at most: 8, 0.25, 1.5.
std::string short_number(double number);

}  // namespace tutti::cli
