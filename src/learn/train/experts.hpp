// The feed-forward part of a layer with experts: a router sends each row to a few of them, and adds up what
// they make of it. Each expert's matrices are cut along the tensor group as an MLP's are; the router is whole
// on every slice, and what a slice computes is a summand. One thread.
//
//   x ─┬─ router ─ softmax ─ the largest few ─────────────────────────────┐ weights
//      └─ a copy of the row for each, sorted by expert ─ MLP of the expert ─┴─ sum of the copies
#pragma once

#include <vector>

#include "learn/model/names.hpp"
#include "learn/train/math.hpp"
#include "learn/train/storage.hpp"

namespace tutti::train {

class Experts {
 public:
  Experts(const model::Shape& shape, Storage& storage, std::int64_t layer);

  // What the backward pass needs of the forward pass. A place is a row's copy for one of its experts.
  struct Tape {
    at::Tensor probabilities;        // rows × experts, f32
    at::Tensor chosen;               // rows × experts of a row
    at::Tensor weights;              // likewise, f32
    at::Tensor order;                // places by expert
    at::Tensor places;               // where in that order each place is
    std::vector<std::int64_t> ends;  // of each expert, in that order
    at::Tensor inputs;
    at::Tensor hidden;
    at::Tensor activated;
    at::Tensor outputs;
  };
  // This slice's summand.
  at::Tensor forward(const at::Tensor& x, Tape& tape) const;
  // Likewise of the gradient of x, from the gradient of the whole sum.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, const Tape& tape);

 private:
  struct Expert {
    View up;  // with the gate before it, where there is one
    View down;
  };

  void route(const at::Tensor& x, Tape& tape) const;
  at::Tensor router_backward(const at::Tensor& dweights, const Tape& tape) const;
  // each(expert, begin, end) for the places of each expert, none left out.
  template <class F>
  void for_experts(const Tape& tape, const F& each) const {
    for (std::size_t i = 0; i < experts_.size(); ++i)
      each(experts_[i], i == 0 ? 0 : tape.ends[i - 1], tape.ends[i]);
  }
  // From places in the order of the experts to the sum over those of each row.
  at::Tensor sum_of_places(const at::Tensor& values, const Tape& tape) const;
  // The row of each place, in the order of the experts.
  at::Tensor rows_of(const Tape& tape) const;

  const model::Shape& shape_;
  Storage& storage_;
  View router_;
  std::vector<Expert> experts_;
};

}  // namespace tutti::train
