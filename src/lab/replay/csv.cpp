#include "lab/replay/csv.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <memory>

namespace tutti::replay {
namespace {

// zlib reads plain files as they are.
Result<std::string> read_all(const std::string& file) {
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> open(gzopen(file.c_str(), "rb"), &gzclose);
  if (open == nullptr) return failed_errno("cannot be read", errno).within(file);
  std::string text;
  std::string piece(1 << 18, '\0');
  for (;;) {
    const int got = gzread(open.get(), piece.data(), static_cast<unsigned>(piece.size()));
    if (got < 0) return failed("is damaged, or is no gzip file").within(file);
    if (got == 0) break;
    text.append(piece, 0, static_cast<std::size_t>(got));
    if (text.size() > csv_bytes_max) return invalid("is larger than 1 GiB").within(file);
  }
  return text;
}

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> cells;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = line.find(',', begin);
    std::string_view cell = line.substr(begin, end == std::string_view::npos ? end : end - begin);
    if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
    cells.emplace_back(cell);
    if (end == std::string_view::npos) return cells;
    begin = end + 1;
  }
}

}  // namespace

int Csv::column(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  return found == columns.end() ? -1 : static_cast<int>(found - columns.begin());
}

Result<int> Csv::need(std::string_view name) const {
  const int found = column(name);
  if (found >= 0) return found;
  std::string known;
  for (const std::string& one : columns) known += (known.empty() ? "" : ", ") + one;
  return invalid("has no column " + std::string(name)).within(file).remedy("its columns are " + known);
}

Error Csv::error(std::size_t row, const std::string& why) const {
  return invalid(why).within(file + ":" + std::to_string(row + 2));
}

Result<Csv> read_csv(const std::string& file) {
  auto text = read_all(file);
  if (!text) return std::move(text).error();
  Csv csv;
  csv.file = file;
  std::string_view left = *text;
  bool first = true;
  while (!left.empty()) {
    const std::size_t end = left.find('\n');
    std::string_view line = left.substr(0, end);
    left = end == std::string_view::npos ? std::string_view() : left.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    auto cells = split(line);
    if (first) {
      csv.columns = std::move(cells);
      first = false;
      continue;
    }
    if (cells.size() != csv.columns.size())
      return csv.error(csv.rows.size(), "has " + std::to_string(cells.size()) + " cells, and the header " +
                                            std::to_string(csv.columns.size()));
    if (csv.rows.size() == csv_rows_max) return csv.error(csv.rows.size(), "is one row too many");
    csv.rows.push_back(std::move(cells));
  }
  if (csv.columns.empty()) return invalid("is empty").within(file);
  return csv;
}

Result<double> number(const Csv& csv, std::size_t row, int column, double min) {
  const std::string& cell = csv.rows[row][static_cast<std::size_t>(column)];
  double value = 0;
  const auto [end, failure] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (failure != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value) || value < min ||
      value > 1e15)
    return csv.error(row, "'" + cell.substr(0, 40) + "' is no " +
                              csv.columns[static_cast<std::size_t>(column)] + ": a number from " +
                              std::to_string(static_cast<long long>(min)) + " on");
  return value;
}

}  // namespace tutti::replay
