#include "control/cluster/latencies.hpp"

#include <cmath>
#include <numeric>

namespace tutti::cluster {

Duration Latencies::end_of(std::size_t step) {
  constexpr double half_a_doubling = 1.4142135623730951;
  const Duration whole = Duration(1ms) * (std::int64_t{1} << (step / 2));
  if (step % 2 == 0) return whole;
  return Duration(std::llround(static_cast<double>(whole.count()) * half_a_doubling));
}

void Latencies::add(Duration time, std::uint64_t times) {
  std::size_t step = 0;
  while (step + 1 < steps && time > end_of(step)) ++step;
  counts[step] += times;
}

void Latencies::add(const Latencies& other) {
  for (std::size_t step = 0; step < steps; ++step) counts[step] += other.counts[step];
}

std::uint64_t Latencies::all() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

// Where in its step one lies nobody knows: in a straight line from its beginning to its end.
Duration Latencies::quantile(double part) const {
  const double wanted = part * static_cast<double>(all());
  double below = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    const auto here = static_cast<double>(counts[step]);
    if (here > 0 && below + here >= wanted) {
      const Duration begin = step == 0 ? Duration::zero() : end_of(step - 1);
      const auto wide = static_cast<double>((end_of(step) - begin).count());
      return begin + Duration(std::llround(wide * (wanted - below) / here));
    }
    below += here;
  }
  return Duration::zero();
}

Latencies Latencies::since(const Latencies& before) const {
  Latencies later;
  for (std::size_t step = 0; step < steps; ++step) {
    if (counts[step] > before.counts[step]) later.counts[step] = counts[step] - before.counts[step];
  }
  return later;
}

}  // namespace tutti::cluster
