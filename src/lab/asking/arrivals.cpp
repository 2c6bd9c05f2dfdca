#include "lab/asking/arrivals.hpp"

#include <algorithm>

#include "lab/replay/csv.hpp"

namespace tutti::asking {
namespace {

Duration seconds(double count) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(count));
}

}  // namespace

Result<std::vector<Arrival>> read_arrivals(const std::string& file, const TraceOptions& options) {
  const auto csv = replay::read_csv(file);
  if (!csv) return csv.error();
  const auto at = csv->need("arrival_s");
  const auto prompt = csv->need("input_tokens");
  const auto output = csv->need("output_tokens");
  for (const auto* const column : {&at, &prompt, &output}) {
    if (!*column) return column->error();
  }
  std::vector<Arrival> arrivals;
  const std::size_t rows = options.count > 0 ? std::min(options.count, csv->rows.size()) : csv->rows.size();
  for (std::size_t row = 0; row < rows; ++row) {
    const auto when = replay::number(*csv, row, *at, 0);
    const auto in = replay::number(*csv, row, *prompt, 0);
    const auto out = replay::number(*csv, row, *output, 0);
    for (const auto* const cell : {&when, &in, &out}) {
      if (!*cell) return cell->error();
    }
    if (*when > 1e9 || *in > tokens_max || *out > tokens_max)
      return csv->error(row, "a time or a number of tokens is too large");
    Arrival arrival{seconds(*when / options.speed), std::max<std::int64_t>(1, static_cast<std::int64_t>(*in)),
                    std::max<std::int64_t>(1, static_cast<std::int64_t>(*out))};
    if (options.context > 1) {
      arrival.output_tokens = std::min(arrival.output_tokens, options.context / 2);
      arrival.prompt_tokens = std::min(arrival.prompt_tokens, options.context - arrival.output_tokens);
    }
    arrivals.push_back(arrival);
  }
  if (arrivals.empty()) return invalid("it has no requests").within(file);
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  const Duration first = arrivals.front().at;
  for (Arrival& arrival : arrivals) arrival.at -= first;
  return arrivals;
}

std::vector<Arrival> even_arrivals(std::size_t count, const Arrival& each, double rate, Prng& random) {
  std::vector<Arrival> arrivals(count, each);
  double at = 0;
  for (Arrival& arrival : arrivals) {
    arrival.at = seconds(at);
    if (rate > 0) at += random.exponential(1 / rate);
  }
  return arrivals;
}

}  // namespace tutti::asking
