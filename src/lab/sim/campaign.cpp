#include "lab/sim/campaign.hpp"

#include <algorithm>

namespace tutti::sim {
namespace {

// Runs the seed once more; what differs is a violation of its own.
void compare(ChaosReport& once, const ChaosOptions& options) {
  const ChaosReport again = run_chaos(once.seed, options);
  if (once.history == again.history) return;
  const auto [one, other] =
      std::mismatch(once.history.begin(), once.history.end(), again.history.begin(), again.history.end());
  once.violation = "one seed gave two histories: '" + (one == once.history.end() ? "the end" : *one) +
                   "' was '" + (other == again.history.end() ? "the end" : *other) + "' the second time";
}

ChaosReport run_seed(const Campaign& campaign, std::uint64_t seed, Tally& tally) {
  const bool twice = campaign.twice_every != 0 && (seed - campaign.first) % campaign.twice_every == 0;
  if (!twice) return run_chaos(seed, campaign.options);
  ++tally.twice;
  ChaosOptions options = campaign.options;
  options.keep_history = true;
  ChaosReport report = run_chaos(seed, options);
  compare(report, options);
  return report;
}

}  // namespace

Tally run_campaign(const Campaign& campaign,
                   const std::function<bool(const Tally&, std::uint64_t seed)>& next) {
  Tally tally;
  // The last may be the largest number there is, after which the first comes again.
  for (std::uint64_t seed = campaign.first; seed <= campaign.last && next(tally, seed); ++seed) {
    ChaosReport report = run_seed(campaign, seed, tally);
    ++tally.seeds;
    tally.faults += report.faults;
    tally.jobs += report.jobs;
    tally.attempts += report.attempts;
    tally.events += report.events;
    tally.time += report.time;
    if (!report.ok()) tally.broken.push_back(std::move(report));
    if (seed == campaign.last) break;
  }
  return tally;
}

}  // namespace tutti::sim
