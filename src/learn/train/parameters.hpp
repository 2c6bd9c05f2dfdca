// The parameters that a rank holds, with their gradients and the optimizer's state: all units of the model
// that are on this rank. One thread.
//
//   ZeRO  weights     gradients        master weights and moments
//   0     all         all, summed      all
//   1     all         own part summed  own part
//   2     all         own part kept    own part
//   3     own part    own part kept    own part       (weights are gathered while a unit is in use)
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "learn/train/storage.hpp"

namespace tutti::train {

struct UpdateOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.1;
  double clip = 1;        // 0: off
  std::int64_t step = 1;  // counted from 1
  bool take = true;       // false: as with gradients that are not finite
};

class Parameters {
 public:
  Parameters(Groups& groups, Keeping keeping) : workspace_(groups, keeping) {}

  Storage& add(std::vector<model::Tensor> tensors, Role role = Role::single);

  // Values for a box of a tensor, row after row.
  using Source = std::function<void(Kind, const model::Tensor&, const checkpoint::Box&, std::span<float>)>;
  // Sets all that this rank owns; the others do not hear of it yet.
  void fill(const Source& source, bool with_moments);
  // All ranks together, after they have filled theirs: the weights are everywhere.
  void publish();

  // Clips by the norm over the whole model, takes one step; the norm before clipping. Gradients that are not
  // finite change nothing, on all ranks alike, and have the norm NaN.
  double update(const UpdateOptions& options);

  // What this rank saves: together the ranks save everything once.
  struct Saved {
    Kind kind;
    const model::Tensor* tensor;
    checkpoint::Box box;
    at::Tensor values;  // a view, f32
  };
  std::vector<Saved> saved();

  const Keeping& keeping() const { return workspace_.keeping(); }
  std::int64_t bytes() const;

 private:
  void finish_gradients();
  void sum_partial_gradients();
  void sum_tied_gradients();
  double squared_norm();
  bool finite_everywhere(double norm);

  Workspace workspace_;
  std::vector<std::unique_ptr<Storage>> storages_;
};

}  // namespace tutti::train
