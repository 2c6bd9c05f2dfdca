#include "common/report.hpp"

#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

namespace tutti::bench {
namespace {

constexpr const char* line_format = "%-46s %14s %20s %7s  %-7s %s\n";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f" : value < 1000 ? "%.1f" : "%.0f", value);
  return text;
}

bool is_at_least(const Bar& bar) {
  return bar.kind == Bar::Kind::ratio_at_least || bar.kind == Bar::Kind::value_at_least;
}

std::string text_of(const Bar& bar) { return (is_at_least(bar) ? ">= " : "<= ") + number(bar.limit); }

std::string text_of(std::optional<double> value, const std::string& unit) {
  return value ? number(*value) + " " + unit : "-";
}

}  // namespace

std::optional<double> Row::ratio() const {
  if (!tutti || !peer || *peer <= 0) return std::nullopt;
  return *tutti / *peer;
}

std::optional<bool> Row::held() const {
  if (!bar) return std::nullopt;
  const bool by_peer = bar->kind == Bar::Kind::ratio_at_most || bar->kind == Bar::Kind::ratio_at_least;
  const auto measured = by_peer ? ratio() : tutti;
  if (!measured) return std::nullopt;
  return is_at_least(*bar) ? *measured >= bar->limit : *measured <= bar->limit;
}

void Report::print_head() const {
  std::printf(line_format, "", "tutti", peer_.c_str(), "ratio", "bar", "held");
}

void Report::add(Row row) {
  const auto ratio = row.ratio();
  const auto held = row.held();
  const std::string name = row.peer && !row.peer_name.empty() ? row.peer_name + " " : "";
  std::printf(line_format, row.what.c_str(), text_of(row.tutti, row.unit).c_str(),
              (name + text_of(row.peer, row.unit)).c_str(), ratio ? number(*ratio).c_str() : "-",
              row.bar ? text_of(*row.bar).c_str() : "-", held ? *held ? "yes" : "no" : "-");
  if (!row.note.empty()) std::printf("    %s\n", row.note.c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

Result<> Report::end(const Options& options) const {
  if (!options.json_file.empty()) {
    if (auto written = write_json(options.json_file); !written) return written;
  }
  std::string missed;
  for (const Row& row : rows_) {
    if (!row.held().value_or(true)) missed += (missed.empty() ? "" : ", ") + row.name;
  }
  if (missed.empty() || options.quick) return {};
  return failed("missed the bar: " + missed);
}

Result<> Report::write_json(const std::string& file) const {
  auto rows = nlohmann::json::array();
  for (const Row& row : rows_) {
    nlohmann::json written{{"name", row.name}, {"unit", row.unit}};
    if (row.tutti) written["tutti"] = *row.tutti;
    if (row.peer) written[row.peer_name.empty() ? peer_ : row.peer_name] = *row.peer;
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
