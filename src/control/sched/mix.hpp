// What gangs ask for in this cluster, and what that says about holes: how much of a hole of some size will
// stay unused, and how much CPU and memory a device needs beside it to be of use. Made now and then from what
// was submitted, and shared by all passes until then. Plain data: any thread.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "control/sched/shape.hpp"

namespace tutti::sched {

struct Mix {
  std::vector<std::pair<Shape, double>> shapes;  // with how often each was seen
  // By the free share of a device: what of it is expected to stay unused.
  std::array<double, whole_share + 1> waste{};
  // What ranks with devices take beside each thousandth of one, on average.
  double cpus_each = 0;
  double memory_each = 0;
  // False if all devices are taken whole and nothing else is asked for: then every fit is as good.
  bool matters = false;
};

Mix make_mix(std::vector<std::pair<Shape, double>> shapes);

// The part of so much free share for which there is neither CPU nor memory left.
double stranded(const Mix& mix, double share, double cpus, double memory);

}  // namespace tutti::sched
