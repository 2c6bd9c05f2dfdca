// One unit of the model on this rank: its weights, their gradients and the optimizer's state, in flat memory,
// so that the unit is reduced, gathered, updated and saved as one. One thread.
#pragma once

#include "learn/train/gradients.hpp"
#include "learn/train/layout.hpp"
#include "learn/train/math.hpp"
#include "learn/train/workspace.hpp"

namespace tutti::train {

// What a checkpoint keeps of each tensor.
enum class Kind { weight, first_moment, second_moment };

class Storage {
 public:
  Storage(Workspace& workspace, Layout layout);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  const Layout& layout() const { return layout_; }
  View view(const std::vector<std::string>& names) const { return layout_.view(names); }

  // The weights are there between the two. Pairs may be nested. `foresee` begins to fetch them.
  void foresee();
  void open();
  void close();
  at::Tensor weight(const View& view) const { return shaped(weights_, view); }

  void add_product(const View& view, const at::Tensor& dy, const at::Tensor& x) {
    gradients_.add_product(view, dy, x);
  }
  at::Tensor gradient(const View& view) { return gradients_.of(view); }
  void backward_done(bool last) { gradients_.backward_done(last); }
  Gradients& gradients() { return gradients_; }

  // The part of the memory that this rank updates, and what it has of it, in f32.
  const Range& owned() const { return owned_; }
  const at::Tensor& values(Kind kind) const;
  // One step of the optimizer on it, with the gradients that are finished; `step.decay` is for what decays.
  void update(math::AdamStep step);
  // The weights that were set here go to the other ranks; they are there at the next `open`.
  void publish();

  std::int64_t bytes() const;

 private:
  bool has_master() const { return master_.data_ptr() != own_weights_.data_ptr(); }
  void share();

  Workspace& workspace_;
  Layout layout_;
  Range owned_;
  at::Tensor weights_;      // all of them; with ZeRO 3 only while they are in use
  at::Tensor own_weights_;  // the owned part, in the type of the weights
  at::Tensor master_;       // the owned part, f32
  at::Tensor first_;
  at::Tensor second_;
  int open_ = 0;
  Pending gathering_;
  Gradients gradients_;
};

}  // namespace tutti::train
