// What the ranks of a model that is split tell each other in a step.
#include "serve/cpu/forward.hpp"

namespace tutti::serve::cpu {

Result<> Forward::problem() const {
  if (problem_) return *problem_;
  return {};
}

// The stream of the first rank has all that was before, so that its sum with what the others have is the
// stream of all.
void Forward::sum(Member& member) {
  if (peers_ == nullptr) return;
  if (member.index() == 0 && !problem_) {
    auto done = peers_->sum(stream_, static_cast<std::size_t>(count_ * hidden_stride_));
    if (!done) problem_ = std::move(done).error();
  }
  member.meet();
}

// The parts of a row stand side by side, so that it is whole where they arrive.
void Forward::gather(Member& member, std::int64_t rows) {
  if (peers_ == nullptr) return;
  if (member.index() == 0) {
    for (std::int64_t row = 0; row < rows && !problem_; ++row) {
      float* const whole = is_first() ? logits_ + row * logits_stride_ : nullptr;
      auto done =
          peers_->gather(part_logits_ + row * part_stride_, whole, static_cast<std::size_t>(part_stride_));
      if (!done) problem_ = std::move(done).error();
    }
  }
  member.meet();
}

}  // namespace tutti::serve::cpu
