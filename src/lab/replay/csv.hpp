// Tables with a header, as CSV, plain or gzip'd. The file is untrusted: lines, columns and sizes are bounded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::replay {

constexpr std::size_t csv_bytes_max = std::size_t{1} << 30;
constexpr std::size_t csv_rows_max = 5'000'000;

struct Csv {
  std::string file;  // for messages
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;

  // -1 if there is no such column.
  int column(std::string_view name) const;
  Result<int> need(std::string_view name) const;
  // "jobs.csv:17: why": the row counts from 0.
  Error error(std::size_t row, const std::string& why) const;
};

Result<Csv> read_csv(const std::string& file);

// A number of a cell that is at least `min`.
Result<double> number(const Csv& csv, std::size_t row, int column, double min);

}  // namespace tutti::replay
