#include "control/cluster/judge.hpp"

#include <cmath>

namespace tutti::cluster {
namespace {

double failing(const Seen& seen) {
  return seen.requests == 0 ? 0 : static_cast<double>(seen.failures) / static_cast<double>(seen.requests);
}

// "2.5%"
std::string percent_text(double part) {
  const auto tenths = std::lround(part * 1'000);
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + "%";
}

std::string rounded_text(Duration time) {
  return format_duration(std::chrono::round<std::chrono::milliseconds>(time));
}

// "2 of 120 requests failed (1.7%), and 3% may: twice the 1% of the other one and 1% more"
std::string failures_text(const Seen& serving, const Seen& canary, double allowed) {
  return std::to_string(canary.failures) + " of " + std::to_string(canary.requests) + " requests failed (" +
         percent_text(failing(canary)) + "), and " + percent_text(allowed) + " may: twice the " +
         percent_text(failing(serving)) + " of the version that serves and 1% more";
}

std::string tokens_text(Duration serving, Duration canary, Duration allowed) {
  return "first tokens take " + rounded_text(canary) + " (p95), and " + rounded_text(allowed) +
         " is the most: half as long again as the " + rounded_text(serving) +
         " of the version that serves and 50ms more";
}

}  // namespace

Judgement judge(const Seen& serving, const Seen& canary, Duration age) {
  const std::string waits = "has had " + std::to_string(canary.requests) + " of the " +
                            std::to_string(canary_requests_min) + " requests that it is judged by";
  if (canary.requests < canary_requests_judged_min) return {Verdict::none, waits};
  const double failures_max = canary_failures_times * failing(serving) + canary_failures_more;
  if (failing(canary) > failures_max)
    return {Verdict::roll_back, failures_text(serving, canary, failures_max)};
  const bool is_due = canary.requests >= canary_requests_min || age >= canary_time_max;
  if (!is_due) return {Verdict::none, waits};
  std::string good = failures_text(serving, canary, failures_max);
  const bool has_both = serving.first_tokens.all() >= canary_requests_judged_min &&
                        canary.first_tokens.all() >= canary_requests_judged_min;
  if (has_both) {
    const Duration before = serving.first_tokens.quantile(0.95);
    const Duration now = canary.first_tokens.quantile(0.95);
    const auto allowed =
        Duration(std::llround(static_cast<double>(before.count()) * canary_ttft_times)) + canary_ttft_more;
    if (now > allowed) return {Verdict::roll_back, tokens_text(before, now, allowed)};
    good += "; " + tokens_text(before, now, allowed);
  }
  if (canary.requests < canary_requests_min) return {Verdict::none, waits};
  return {Verdict::promote, good};
}

}  // namespace tutti::cluster
