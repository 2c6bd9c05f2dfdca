#include "lab/asking/report.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::asking {
namespace {

Spread spread_of(const std::vector<Duration>& durations) {
  return {quantile(durations, 0.5), quantile(durations, 0.99), quantile(durations, 1)};
}

}  // namespace

Duration quantile(std::vector<Duration> durations, double share) {
  if (durations.empty()) return {};
  const double place = std::ceil(share * static_cast<double>(durations.size())) - 1;
  const auto at = static_cast<std::ptrdiff_t>(std::max(0.0, place));
  std::nth_element(durations.begin(), durations.begin() + at, durations.end());
  return durations[static_cast<std::size_t>(at)];
}

Report summarize(std::span<const Sample> samples, Duration took, const Targets& targets) {
  Report report;
  std::vector<Duration> first;
  std::vector<Duration> next;
  std::vector<Duration> pause;
  std::vector<Duration> whole;
  std::int64_t output = 0;
  std::int64_t prompt = 0;
  std::size_t good = 0;
  for (const Sample& sample : samples) {
    if (!sample.problem.empty()) {
      ++report.problems[sample.problem];
      continue;
    }
    ++report.answered;
    output += sample.output_tokens;
    prompt += sample.prompt_tokens;
    first.push_back(sample.first_token);
    whole.push_back(sample.whole);
    if (sample.output_tokens > 1) {
      next.push_back(sample.next_token());
      pause.push_back(sample.pause);
    }
    if (sample.first_token <= targets.first_token && sample.next_token() <= targets.next_token) ++good;
  }
  const double seconds = std::max(in_seconds(took), 1e-9);
  report.requests_per_second = static_cast<double>(report.answered) / seconds;
  report.output_tokens_per_second = static_cast<double>(output) / seconds;
  report.prompt_tokens_per_second = static_cast<double>(prompt) / seconds;
  report.good_per_second = static_cast<double>(good) / seconds;
  report.good_share = samples.empty() ? 0 : static_cast<double>(good) / static_cast<double>(samples.size());
  report.first_token = spread_of(first);
  report.next_token = spread_of(next);
  report.pause = spread_of(pause);
  report.whole = spread_of(whole);
  return report;
}

}  // namespace tutti::asking
