#include "control/sched/past.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::sched {
namespace {

constexpr std::size_t kept_of_a_kind = 1024;
constexpr std::size_t kept_max = 1 << 18;  // of all
constexpr std::size_t recent_max = 240;
constexpr std::size_t spread_max = 12;
// The spread moves slowly once there are many.
constexpr std::size_t spread_every = 20;

}  // namespace

double weight_of(double devices) { return devices > 1 ? std::pow(devices, 1.25) : 1; }

void Past::add(std::uint32_t kind, Instant submitted, double seconds, double devices) {
  if (kind >= kinds_.size()) kinds_.resize(kind + std::size_t{1});
  std::vector<Ended>& ended = kinds_[kind];
  const auto after = std::upper_bound(ended.begin(), ended.end(), submitted,
                                      [](Instant at, const Ended& other) { return at < other.submitted; });
  ended.insert(after, {submitted, seconds});
  ++kept_;
  if (ended.size() > kept_of_a_kind) {
    ended.erase(ended.begin());
    --kept_;
  }
  if (kept_ > kept_max) forget_half();

  const double weighed = seconds * weight_of(devices);
  if (recent_.size() < recent_max) {
    recent_.push_back(weighed);
  } else {
    recent_[added_ % recent_max] = weighed;
  }
  if (++added_ > spread_every && added_ % spread_every != 0) return;
  std::vector<double> sorted = recent_;
  std::sort(sorted.begin(), sorted.end());
  spread_.clear();
  for (std::size_t part = 0; part < spread_max; ++part)
    spread_.push_back(sorted[(2 * part + 1) * sorted.size() / (2 * spread_max)]);
}

void Past::forget_half() {
  kept_ = 0;
  for (std::vector<Ended>& ended : kinds_) {
    ended.erase(ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>((ended.size() + 1) / 2));
    kept_ += ended.size();
  }
}

std::span<const Past::Ended> Past::of(std::uint32_t kind) const {
  return kind < kinds_.size() ? std::span<const Ended>(kinds_[kind]) : std::span<const Ended>();
}

}  // namespace tutti::sched
