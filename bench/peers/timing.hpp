// What the programs of the peers share: how an all-reduce is timed, and how its time is printed. One thread a
// rank.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

namespace tutti::bench {

constexpr int iterations_max = 100'000;
constexpr int rounds_more = 3;

// Ordinary memory that begins with a page, as tutti's does when it is measured.
class Values {
 public:
  explicit Values(std::size_t count) : count_(count), data_(new (alignment) float[count]) {}
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  ~Values() { operator delete[](data_, alignment); }

  std::size_t size() const { return count_; }
  float* data() const { return data_; }
  float* begin() const { return data_; }
  float* end() const { return data_ + count_; }

 private:
  static constexpr std::align_val_t alignment{4096};
  std::size_t count_;
  float* data_;
};

// One library, joined by this rank.
struct Library {
  int rank = 0;
  int ranks = 1;
  // Also a barrier: nobody has the answer before everybody has asked.
  std::function<double(double)> max_over_ranks;
  // Makes what reduces this buffer in place, time and again.
  std::function<std::function<void()>(const Values&)> prepare;
};

// So many calls, by the slowest rank.
inline double round_seconds(const Library& library, const std::function<void()>& all_reduce, int iterations) {
  library.max_over_ranks(0);
  const auto start = std::chrono::steady_clock::now();
  for (int at = 0; at < iterations; ++at) all_reduce();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return library.max_over_ranks(spent.count());
}

// As `tutti bench comm` does it, or the ratio would be one of two clocks: rounds grow until one lasts a
// quarter of the time, and the best of it and of three more counts.
inline double best_seconds(const Library& library, const std::function<void()>& all_reduce, double wanted) {
  int iterations = 1;
  double seconds = round_seconds(library, all_reduce, iterations);
  while (seconds * 4 < wanted && iterations < iterations_max) {
    iterations *= seconds * 32 < wanted ? 8 : 2;
    seconds = round_seconds(library, all_reduce, iterations);
  }
  for (int at = 0; at < rounds_more; ++at) {
    seconds = std::min(seconds, round_seconds(library, all_reduce, iterations));
  }
  return seconds / iterations;
}

// One reduction whose result is known.
inline void check_sum(const Library& library, const std::function<void()>& all_reduce, const Values& values) {
  std::fill(values.begin(), values.end(), static_cast<float>(library.rank + 1));
  all_reduce();
  const auto sum = static_cast<float>(library.ranks * (library.ranks + 1) / 2);
  if (std::all_of(values.begin(), values.end(), [sum](float value) { return value == sum; })) return;
  std::fprintf(stderr, "rank %d: the sum is wrong\n", library.rank);
  std::exit(1);
}

// One line of JSON a size, from rank 0.
inline void print_times(const Library& library, const std::vector<std::size_t>& sizes, double seconds) {
  for (const std::size_t bytes : sizes) {
    const Values values(bytes / sizeof(float));
    const auto all_reduce = library.prepare(values);
    check_sum(library, all_reduce, values);
    std::fill(values.begin(), values.end(), 0.0F);  // however often it is doubled, it stays a plain number
    const double best = best_seconds(library, all_reduce, seconds);
    if (library.rank != 0) continue;
    std::printf("{\"bytes\": %zu, \"time_us\": %.4f}\n", bytes, best * 1e6);
    std::fflush(stdout);
  }
}

// The words that both programs end with: SECONDS BYTES...
struct Plan {
  double seconds = 0;
  std::vector<std::size_t> sizes;
};
inline Plan read_plan(int count, char** words, int first) {
  Plan plan;
  if (first < count) plan.seconds = std::strtod(words[first], nullptr);
  for (int at = first + 1; at < count; ++at) plan.sizes.push_back(std::strtoull(words[at], nullptr, 10));
  return plan;
}

}  // namespace tutti::bench
