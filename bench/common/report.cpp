#include "common/report.hpp"

#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

namespace tutti::bench {
namespace {

constexpr const char* line_format = "%-46s %14s %14s %7s  %-7s %s\n";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f" : value < 1000 ? "%.1f" : "%.0f", value);
  return text;
}

std::string text_of(const Bar& bar) {
  return (bar.kind == Bar::Kind::ratio_at_least ? ">= " : "<= ") + number(bar.limit);
}

}  // namespace

std::optional<double> Row::ratio() const {
  if (!peer || *peer <= 0) return std::nullopt;
  return tutti / *peer;
}

std::optional<bool> Row::held() const {
  if (!bar) return std::nullopt;
  if (bar->kind == Bar::Kind::value_at_most) return tutti <= bar->limit;
  const auto measured = ratio();
  if (!measured) return std::nullopt;
  return bar->kind == Bar::Kind::ratio_at_most ? *measured <= bar->limit : *measured >= bar->limit;
}

void Report::print_head() const {
  std::printf(line_format, "", "tutti", peer_.c_str(), "ratio", "bar", "held");
}

void Report::add(Row row) {
  const auto ratio = row.ratio();
  const auto held = row.held();
  std::printf(line_format, row.what.c_str(), (number(row.tutti) + " " + row.unit).c_str(),
              row.peer ? (number(*row.peer) + " " + row.unit).c_str() : "-",
              ratio ? number(*ratio).c_str() : "-", row.bar ? text_of(*row.bar).c_str() : "-",
              held ? *held ? "yes" : "no" : "-");
  if (!row.note.empty()) std::printf("    %s\n", row.note.c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

Result<> Report::write_json(const std::string& file) const {
  auto rows = nlohmann::json::array();
  for (const Row& row : rows_) {
    nlohmann::json written{{"name", row.name}, {"unit", row.unit}, {"tutti", row.tutti}};
    if (row.peer) written[peer_] = *row.peer;
    if (const auto ratio = row.ratio()) written["ratio"] = *ratio;
    if (row.bar) written["bar"] = text_of(*row.bar);
    if (const auto held = row.held()) written["held"] = *held;
    if (!row.note.empty()) written["note"] = row.note;
    rows.push_back(std::move(written));
  }
  std::ofstream stream(file);
  stream << rows.dump(2) << "\n";
  stream.flush();
  if (!stream) return failed("cannot be written").within(file);
  return {};
}

}  // namespace tutti::bench
