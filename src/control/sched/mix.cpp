#include "control/sched/mix.hpp"

#include <algorithm>
#include <map>

namespace tutti::sched {
namespace {

// So many gangs come by before a hole is given up. Fewer are too hopeful about odd holes; many more make
// every hole look filled in the end.
constexpr int arrivals = 64;

}  // namespace

Mix make_mix(std::vector<std::pair<Shape, double>> shapes) {
  Mix mix;
  std::map<std::int32_t, double> sizes;  // of what is asked of one device
  double seen = 0;
  double share = 0;
  for (const auto& [shape, often] : shapes) {
    if (shape.gpu_share == 0) continue;
    sizes[share_each(shape)] += often;
    seen += often;
    share += often * shape.gpu_share;
    mix.cpus_each += often * shape.cpus;
    mix.memory_each += often * static_cast<double>(shape.memory.count());
    mix.matters =
        mix.matters || share_each(shape) != whole_share || shape.cpus > 0 || shape.memory.count() > 0;
  }
  mix.shapes = std::move(shapes);
  for (std::size_t hole = 0; hole < mix.waste.size(); ++hole) mix.waste[hole] = static_cast<double>(hole);
  if (seen == 0 || !mix.matters) return mix;
  mix.cpus_each /= share;
  mix.memory_each /= share;
  // Each that comes by and fits is taken or let pass, whichever wastes less in the end. From the largest hole
  // down: a hole becomes a smaller one, of which the value before this arrival is needed.
  for (int arrival = 0; arrival < arrivals; ++arrival) {
    for (std::size_t hole = whole_share + 1; hole-- > 0;) {
      double expected = 0;
      for (const auto& [size, often] : sizes) {
        const bool fits = std::cmp_less_equal(size, hole);
        const double taken = fits ? mix.waste[hole - static_cast<std::size_t>(size)] : mix.waste[hole];
        expected += often * std::min(mix.waste[hole], taken);
      }
      mix.waste[hole] = expected / seen;
    }
  }
  return mix;
}

double stranded(const Mix& mix, double share, double cpus, double memory) {
  double fed = share;
  if (mix.cpus_each > 0) fed = std::min(fed, cpus / mix.cpus_each);
  if (mix.memory_each > 0) fed = std::min(fed, memory / mix.memory_each);
  return share - fed;
}

}  // namespace tutti::sched
