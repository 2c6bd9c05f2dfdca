// A line on a terminal that tells how far the work is: a bar, the amount and the rate. Nothing where stderr
// is no terminal. Main thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string doing) : doing_(std::move(doing)) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // The line goes with the bar.
  ~ProgressBar();

  void show_bytes(std::uint64_t done, std::uint64_t all);
  void show_count(std::uint64_t done, std::uint64_t all);

 private:
  using Clock = std::chrono::steady_clock;

  // Often enough for the eye, and seldom enough to cost nothing.
  bool due();
  void show(double share, const std::string& amounts);

  std::string doing_;
  Clock::time_point started_at_ = Clock::now();
  Clock::time_point shown_at_;
  bool shown_ = false;
};

}  // namespace tutti::cli
