// Random numbers that are the same on every machine: one seed, one sequence. The standard engines are
// portable but their distributions are not, so the bounded draws are our own. xoshiro256++ by Blackman and
// Vigna, seeded through splitmix64. Not for secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti {

// 2^64 over the golden ratio.
constexpr std::uint64_t golden_step = 0x9e3779b97f4a7c15;

// What splitmix64 draws in this state: each bit of the value changes half of the result.
constexpr std::uint64_t mixed(std::uint64_t value) {
  value += golden_step;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

class Prng {
 public:
  explicit Prng(std::uint64_t seed);

  // Uniform over all 64 bits.
  std::uint64_t next();
  // Uniform in [0, bound). bound > 0.
  std::uint64_t below(std::uint64_t bound);
  // Uniform in [low, high], both included. low <= high.
  std::int64_t between(std::int64_t low, std::int64_t high);
  // Uniform in [0, 1), 53 bits.
  double unit();
  // True with the given probability.
  bool chance(double probability) { return unit() < probability; }
  // Exponential with the given mean: the gaps of independent arrivals or failures.
  double exponential(double mean);

  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[below(left)]);
  }

  // A generator for a part of the work: it draws from here once and is then independent.
  Prng fork() { return Prng(next()); }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace tutti
