// What making one form may take in all: a count that all its patterns and the tokens that are tried share,
// and the word that nobody waits for it any more. One thread spends; the word may come from any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stop_token>
#include <utility>

#include "base/result.hpp"

namespace tutti::serve {

// Counted as a machine counts its work, so that the same form is taken or refused everywhere. The worst of
// the forms that were tried took 12 ns for each of them on a core of a busy server, compiled with -O1: a
// quarter of a second.
inline constexpr std::uint64_t form_work_max = 20'000'000;

class Effort {
 public:
  explicit Effort(std::stop_token abandoned = {}, std::uint64_t most = form_work_max)
      : left_(most), abandoned_(std::move(abandoned)) {}

  // False once nothing is left to spend, or nobody waits any more: whoever spends stops then.
  bool spend(std::uint64_t work) {
    left_ -= std::min(left_, work);
    return goes_on();
  }
  bool goes_on() const { return left_ > 0 && !abandoned_.stop_requested(); }
  std::uint64_t left() const { return left_; }

  // Why it does not go on.
  Error refusal() const {
    if (abandoned_.stop_requested()) return failed("nobody waits for this form any more");
    return invalid("to know what this form allows takes too much work")
        .remedy("let fewer alternatives begin alike, and count less");
  }

 private:
  std::uint64_t left_;
  std::stop_token abandoned_;
};

}  // namespace tutti::serve
