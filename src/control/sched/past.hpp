// How long gangs ran, by kind: what one user submits to one queue in one shape is of one kind. Gangs of a
// kind that come together mostly run alike, as a sweep does, or a second try. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.hpp"

namespace tutti::sched {

// A second of many devices counts for more than as many of one: they are harder to find again.
double weight_of(double devices);

class Past {
 public:
  struct Ended {
    Instant submitted;
    double seconds = 0;
  };

  void add(std::uint32_t kind, Instant submitted, double seconds, double devices);

  // The newest of a kind, in the order of their submission.
  std::span<const Ended> of(std::uint32_t kind) const;
  // Of all kinds lately, times their weight: a dozen, from the least to the most, each as likely as the
  // others.
  std::span<const double> of_all() const { return spread_; }

 private:
  void forget_half();

  std::vector<std::vector<Ended>> kinds_;
  std::size_t kept_ = 0;
  std::vector<double> recent_;  // in a ring
  std::size_t added_ = 0;
  std::vector<double> spread_;
};

inline const Past no_past;

}  // namespace tutti::sched
