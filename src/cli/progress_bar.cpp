#include "cli/progress_bar.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock/clock.hpp"
#include "base/units.hpp"

namespace tutti::cli {
namespace {

constexpr auto shown_every = std::chrono::milliseconds(100);
constexpr std::size_t bar_letters = 24;

bool on_a_terminal() {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

double share_of(std::uint64_t done, std::uint64_t all) {
  return all == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(all));
}

}  // namespace

ProgressBar::~ProgressBar() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

bool ProgressBar::due() {
  if (!on_a_terminal()) return false;
  const auto now = Clock::now();
  if (shown_ && now - shown_at_ < shown_every) return false;
  shown_at_ = now;
  return true;
}

void ProgressBar::show_bytes(std::uint64_t done, std::uint64_t all) {
  if (!due()) return;
  const double seconds = seconds_since(started_at_);
  const auto rate = static_cast<std::int64_t>(static_cast<double>(done) / std::max(seconds, 1e-3));
  show(share_of(done, all), format_bytes(Bytes(static_cast<std::int64_t>(done))) + " of " +
                                format_bytes(Bytes(static_cast<std::int64_t>(all))) + ", " +
                                format_bytes(Bytes(rate)) + "/s");
}

void ProgressBar::show_count(std::uint64_t done, std::uint64_t all) {
  if (due()) show(share_of(done, all), std::to_string(done) + " of " + std::to_string(all));
}

void ProgressBar::show(double share, const std::string& amounts) {
  const auto full = static_cast<std::size_t>(share * static_cast<double>(bar_letters));
  const std::string bar = std::string(full, '#') + std::string(bar_letters - full, '-');
  std::fprintf(stderr, "\r\033[K%s [%s] %.0f%%  %s", doing_.c_str(), bar.c_str(), share * 100,
               amounts.c_str());
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace tutti::cli
