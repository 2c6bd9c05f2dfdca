// The numbers of a benchmark, beside the peer's and the bar that is set for them. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "common/options.hpp"

namespace tutti::bench {

struct Bar {
  enum class Kind { ratio_at_most, ratio_at_least, value_at_most, value_at_least };
  Kind kind = Kind::value_at_most;
  double limit = 0;
};

struct Row {
  std::string name;  // in the JSON file
  std::string what;  // in the table
  std::string unit;
  std::optional<double> tutti;  // nothing where it could not be measured; the note says why
  std::optional<double> peer;
  std::string peer_name;  // where it is another one than the report's
  std::optional<Bar> bar;
  std::string note;

  std::optional<double> ratio() const;
  // Whether the bar is held; nothing without a bar, or without the peer that it is measured by.
  std::optional<bool> held() const;
};

class Report {
 public:
  explicit Report(std::string peer) : peer_(std::move(peer)) {}

  void print_head() const;
  // Prints the row at once: a benchmark takes minutes.
  void add(Row row);
  // Writes what is asked for. A bar that is missed is a failure that names it, but of a run that is to be
  // quick.
  Result<> end(const Options& options) const;

 private:
  Result<> write_json(const std::string& file) const;

  std::string peer_;
  std::vector<Row> rows_;
};

}  // namespace tutti::bench
