#include "lab/replay/trace.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/replay/csv.hpp"

namespace tutti::replay {
namespace {

constexpr double job_gpus_max = 1'000'000;
constexpr double seconds_max = 1e9;  // thirty years
constexpr double submit_max = 4e9;   // seconds since 1970 may be used, too

Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Result<std::vector<TraceJob>> read_trace(const std::string& file, const std::string& partition) {
  auto csv = read_csv(file);
  if (!csv) return std::move(csv).error();
  std::array<int, 4> at{};
  const std::array<std::string_view, 4> names{"job_id", "submit_s", "gpus", "duration_s"};
  for (std::size_t next = 0; next < names.size(); ++next) {
    auto column = csv->need(names[next]);
    if (!column) return std::move(column).error();
    at[next] = *column;
  }
  const int type = csv->column("gpu_type");
  const int user = csv->column("user");
  const int part = csv->column("partition");
  if (!partition.empty() && part < 0) return csv->need("partition").error();
  const auto cell = [&](std::size_t row, int column) {
    return column < 0 ? std::string() : csv->rows[row][static_cast<std::size_t>(column)];
  };
  std::vector<TraceJob> jobs;
  jobs.reserve(csv->rows.size());
  for (std::size_t row = 0; row < csv->rows.size(); ++row) {
    if (!partition.empty() && cell(row, part) != partition) continue;
    const auto submit = number(*csv, row, at[1], 0);
    const auto gpus = number(*csv, row, at[2], 0);
    const auto duration = number(*csv, row, at[3], 0);
    for (const auto* value : {&submit, &gpus, &duration}) {
      if (!*value) return value->error();
    }
    if (*gpus < 1) continue;  // nothing for a scheduler of devices
    if (*gpus > job_gpus_max || *submit > submit_max || *duration > seconds_max)
      return csv->error(row, "a number is out of range");
    jobs.push_back({cell(row, at[0]), from_seconds(*submit), static_cast<std::int32_t>(std::ceil(*gpus)),
                    std::max<Duration>(from_seconds(*duration), 1ms), cell(row, type), cell(row, user)});
  }
  if (jobs.empty()) {
    return invalid(partition.empty() ? "has no jobs" : "has no jobs of partition '" + partition + "'")
        .within(file);
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit < b.submit; });
  const Duration first = jobs.front().submit;
  if (jobs.back().submit - first > from_seconds(seconds_max))
    return invalid("the first and the last job are more than thirty years apart").within(file);
  for (TraceJob& job : jobs) job.submit -= first;
  return jobs;
}

}  // namespace tutti::replay
