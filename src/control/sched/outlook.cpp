#include "control/sched/outlook.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/check.hpp"

namespace tutti::sched {
namespace {

constexpr std::size_t neighbours = 5;
// One that came so much earlier or later tells half as much.
constexpr double half_as_much_s = 60;
// A sibling that still runs tells less than one that ended: it is taken to be over at so many times what it
// had.
constexpr double begun_s = 30;
constexpr double runs_on = 6;
constexpr double weight_of_begun = 0.3;
// The weight of everything that ended lately, beside one sibling, and of the chance to run as long again.
constexpr double weight_of_all = 0.2;
constexpr double weight_of_more = 0.01;
constexpr double more = 1000;  // seconds of one device, at least

struct Sample {
  double seconds = 0;  // times the weight of the devices
  double weight = 0;
};

class Samples {
 public:
  explicit Samples(double at_most) : at_most_(at_most) {}

  void add(double seconds, double weight) {
    TUTTI_CHECK(count_ < all_.size());
    all_[count_++] = {std::min(seconds, at_most_), weight};
  }

  // Over all times t: what it costs to run it until t or its end, for the chance that it ends by then.
  double index() {
    std::sort(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(count_),
              [](const Sample& a, const Sample& b) { return a.seconds < b.seconds; });
    double all = 0;
    for (std::size_t at = 0; at < count_; ++at) all += all_[at].weight;
    double best = std::numeric_limits<double>::max();
    double ended = 0;
    double spent = 0;
    for (std::size_t at = 0; at < count_; ++at) {
      ended += all_[at].weight;
      spent += all_[at].weight * all_[at].seconds;
      best = std::min(best, (spent + (all - ended) * all_[at].seconds) / ended);
    }
    return best;
  }

 private:
  double at_most_;
  std::array<Sample, 32> all_;
  std::size_t count_ = 0;
};

double apart_s(Instant a, Instant b) { return std::abs(std::chrono::duration<double>(a - b).count()); }

// Visits those around an instant, the nearest first, until the visitor has had enough.
template <class Entries, class Visit>
void visit_nearest(const Entries& entries, Instant submitted, Visit visit) {
  auto after = std::lower_bound(entries.begin(), entries.end(), submitted,
                                [](const auto& entry, Instant at) { return entry.submitted < at; });
  auto before = after;
  while (before != entries.begin() || after != entries.end()) {
    const bool earlier = after == entries.end() ||
                         (before != entries.begin() && apart_s(std::prev(before)->submitted, submitted) <=
                                                           apart_s(after->submitted, submitted));
    if (!visit(earlier ? *--before : *after++)) return;
  }
}

}  // namespace

double run_seconds(const JobView& job, Instant now) {
  const double devices = static_cast<double>(job.shape->ranks) * job.shape->gpu_share / whole_share;
  return devices > 0 ? served_by(job, now) / devices : 0;
}

Outlook::Outlook(const Snapshot& snapshot, Instant now) : past_(*snapshot.past), now_(now) {
  const auto note = [&](const JobView& job) {
    const double seconds = run_seconds(job, now);
    if (seconds < begun_s) return;
    if (job.kind >= begun_.size()) begun_.resize(job.kind + std::size_t{1});
    begun_[job.kind].push_back({job.submitted_at, seconds});
  };
  for (const JobView* job : snapshot.running) note(*job);
  for (const JobView* job : snapshot.queued) note(*job);
  for (auto& of_kind : begun_) {
    std::sort(of_kind.begin(), of_kind.end(), [](const Begun& a, const Begun& b) {
      return std::tie(a.submitted, a.seconds) < std::tie(b.submitted, b.seconds);
    });
  }
}

double Outlook::cost(const JobView& job) const {
  const double weight = weight_of(devices_of(job));
  const double age = run_seconds(job, now_);
  const auto nearness = [&](Instant submitted) {
    return 1 / (1 + apart_s(submitted, job.submitted_at) / half_as_much_s);
  };
  // A time limit is kept, by each attempt, with the grace that follows it.
  const Duration had = job.places.slots.empty() ? Duration() : now_ - job.started_at;
  const double left = std::chrono::duration<double>(job.time_limit + job.grace - had).count();
  Samples samples(job.time_limit > Duration::zero() ? std::max(left, 1.0) * weight
                                                    : std::numeric_limits<double>::max());
  std::size_t seen = 0;
  visit_nearest(past_.of(job.kind), job.submitted_at, [&](const Past::Ended& other) {
    if (other.seconds > age) samples.add((other.seconds - age) * weight, nearness(other.submitted));
    return ++seen < neighbours;
  });
  if (job.kind < begun_.size()) {
    std::size_t told = 0;
    seen = 0;
    visit_nearest(begun_[job.kind], job.submitted_at, [&](const Begun& other) {
      if (other.seconds > age) {
        samples.add((other.seconds * runs_on - age) * weight, weight_of_begun * nearness(other.submitted));
        ++told;
      }
      return told < neighbours && ++seen < 4 * neighbours;
    });
  }
  const auto all = past_.of_all();
  for (const double weighed : all) {
    if (weighed > age * weight)
      samples.add(weighed - age * weight, weight_of_all / static_cast<double>(all.size()));
  }
  samples.add(std::max(age * weight, more), weight_of_more);
  return samples.index();
}

}  // namespace tutti::sched
