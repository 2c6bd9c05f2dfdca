// Whether the first step after a resume gives the loss that was recorded when the state was saved. Pure.
#pragma once

namespace tutti::train {

// The same mesh on the same kind of machine gives the same bits; another mesh, or another model of CPU or
// GPU, adds up in another order; bf16 has three digits.
struct ReplayTerms {
  bool bf16 = false;
  bool same_mesh = false;
};

enum class Replay {
  same,     // as the terms explain
  rounded,  // more than that, and less than another state would give: people are told
  another,  // another state, or none at all
};

Replay compare_losses(double loss, double recorded, const ReplayTerms& terms);

}  // namespace tutti::train
