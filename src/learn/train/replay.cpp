#include "learn/train/replay.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::train {
namespace {

// How far the losses may lie apart, as a part of the recorded one.
struct Tolerance {
  double expected;
  double accepted;
};
constexpr Tolerance replay_same_mesh{1e-7, 1e-3};
constexpr Tolerance replay_f32{1e-5, 1e-3};
constexpr Tolerance replay_bf16{5e-3, 3e-2};
// Below it the rounding of a loss does not shrink with the loss, which may be exactly 0 of a model that knows
// its data by heart.
constexpr double loss_least = 1e-3;

}  // namespace

Replay compare_losses(double loss, double recorded, const ReplayTerms& terms) {
  const Tolerance tolerance = terms.bf16 ? replay_bf16 : terms.same_mesh ? replay_same_mesh : replay_f32;
  const double apart = std::abs(loss - recorded) / std::max(std::abs(recorded), loss_least);
  if (apart <= tolerance.expected) return Replay::same;
  return apart <= tolerance.accepted ? Replay::rounded : Replay::another;  // a NaN is another
}

}  // namespace tutti::train
