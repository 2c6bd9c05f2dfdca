// The gradients of one unit in one step: added up over the microbatches, then summed over the replicas. One
// thread.
//
// What is summed over ranks is f32, whatever the backward pass was computed in.
//
//   ZeRO 0, 1  the microbatches are added here; the sum of the last one is reduced
//   ZeRO 2, 3  each microbatch is reduced, and the owned part of it is added
#pragma once

#include "learn/train/workspace.hpp"

namespace tutti::train {

class Gradients {
 public:
  Gradients(Workspace& workspace, const Layout& layout, const Range& owned);

  // gradient (+)= dyᵀ x
  void add_product(const View& view, const at::Tensor& dy, const at::Tensor& x);
  // The gradient so far, to add to.
  at::Tensor of(const View& view);
  // The backward pass of a microbatch is over; `last` says that it was the last one of the step.
  void backward_done(bool last);

  // Waits for the sums over the replicas; what comes after belongs to the next step. The workspace is
  // settled.
  void finish();
  // The sums of the owned part, once they are finished.
  at::Tensor owned() const;

  std::int64_t bytes() const;

 private:
  bool reduces_each_microbatch() const { return workspace_.keeping().zero >= Zero::gradients; }
  bool touch(const View& view);
  void accumulate(const at::Tensor& more);

  Workspace& workspace_;
  std::int64_t count_;
  Range owned_;
  at::Tensor current_;  // of the microbatch, or the sum so far; from the workspace where each one is reduced
  at::Tensor accumulated_;            // f32, where `current_` does not hold the sum of the microbatches
  std::vector<bool> touched_;         // by slot: `current_` holds something
  bool accumulated_touched_ = false;  // the same of `accumulated_`
  Pending reducing_;
};

}  // namespace tutti::train
