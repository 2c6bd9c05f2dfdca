// How long first tokens took, counted in steps of half a doubling: fine enough to tell half as long again
// from as long, and small enough to be sent each second. A value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.hpp"

namespace tutti::cluster {

struct Latencies {
  static constexpr std::size_t steps = 40;

  // The one with the number i has those of at most 2^(i/2) ms, the last one all that took longer.
  std::array<std::uint64_t, steps> counts{};

  static Duration end_of(std::size_t step);
  void add(Duration time, std::uint64_t times = 1);
  void add(const Latencies& other);
  std::uint64_t all() const;
  // What this part of them took at most; zero if there are none.
  Duration quantile(double part) const;
  // What has come since it was `before`.
  Latencies since(const Latencies& before) const;

  friend bool operator==(const Latencies&, const Latencies&) = default;
};

}  // namespace tutti::cluster
