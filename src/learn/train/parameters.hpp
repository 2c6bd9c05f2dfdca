// The parameters that a rank holds, with their gradients and the optimizer's state. The tensors of a unit of
// the model lie one after the other in flat memory, so that a unit is reduced, gathered, updated and saved as
// one. One thread.
//
//   ZeRO  weights     gradients        master weights and moments
//   0     all         all, summed      all
//   1     all         own part summed  own part
//   2     all         own part kept    own part
//   3     own part    own part kept    own part       (weights are gathered while a unit is in use)
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "learn/checkpoint/box.hpp"
#include "learn/model/shape.hpp"
#include "learn/train/group.hpp"

namespace tutti::train {

enum class Zero { none, optimizer, gradients, parameters };

// How this rank keeps parameters.
struct Keeping {
  Zero zero = Zero::none;
  at::Device device = at::kCPU;
  at::ScalarType type = at::kFloat;  // of weights and gradients; master weights and moments are always f32
  int microbatches = 1;
};

// Flat memory: shared with the other ranks of the host where it is the host's.
at::Tensor flat_memory(std::int64_t count, at::ScalarType type, at::Device device);

// A tensor of the model, as far as this rank has it.
struct Slot {
  model::Tensor tensor;
  checkpoint::Box box;              // which part of it
  std::vector<std::int64_t> shape;  // of the part here, with the padding of a cut vocabulary
  std::int64_t begin = 0;           // in the flat memory
  std::int64_t count = 0;
  bool ours = true;      // counted and saved by this rank, not by another one with the same values
  bool partial = false;  // whole here and on the other slices, each of which sees some of the rows

  std::int64_t end() const { return begin + count; }
};

// Neighbouring slots as one matrix or vector.
struct View {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // 0: a vector
  std::size_t slot = 0;      // the first of them
  std::size_t slots = 1;
};

// A piece of a slot inside a range of the flat memory.
struct Piece {
  const Slot* slot;
  checkpoint::Box box;  // of the whole tensor
  std::int64_t at = 0;  // where it begins, counted from the range's beginning
  std::int64_t count = 0;
};

class Parameters;

// With a tied head, the first and the last stage of a pipeline both hold the embedding.
enum class Role { single, first_of_two, second_of_two };

class Storage {
 public:
  Storage(Parameters& owner, std::vector<model::Tensor> tensors, Role role);

  View view(const std::vector<std::string>& names) const;

  // The weights are there between the two. Pairs may be nested. `foresee` begins to fetch them.
  void foresee();
  void open();
  void close();
  at::Tensor weight(const View& view) const;

  // gradient (+)= dyᵀ x
  void add_product(const View& view, const at::Tensor& dy, const at::Tensor& x);
  // The gradient so far, to add to.
  at::Tensor gradient(const View& view);
  // The unit's backward pass of a microbatch is over; `last` says that it was the last one of the step.
  void backward_done(bool last);

 private:
  friend class Parameters;
  at::Tensor shaped(const at::Tensor& flat, const View& view) const;
  void take_gradients();
  void fold();
  at::Tensor part(const at::Tensor& flat) const;
  std::vector<Piece> pieces(std::int64_t begin, std::int64_t end) const;
  void share();

  Parameters& owner_;
  std::vector<Slot> slots_;
  Role role_;
  std::int64_t count_ = 0;         // with padding, so that it divides
  std::int64_t decaying_end_ = 0;  // slots before it decay
  std::int64_t owned_begin_ = 0;
  std::int64_t owned_end_ = 0;
  at::Tensor weights_;
  at::Tensor own_weights_;  // the owned part, in the type of the weights
  at::Tensor master_;       // the owned part, f32
  at::Tensor gradients_;
  at::Tensor accumulated_;  // f32, where gradients_ cannot hold the sum of the microbatches
  at::Tensor first_;
  at::Tensor second_;
  std::vector<bool> touched_;
  bool accumulated_touched_ = false;
  int open_ = 0;
  Pending gathering_;
  Pending reducing_;
  std::deque<std::pair<Pending, at::Tensor>> folding_;
};

// What a checkpoint keeps of each tensor.
enum class Kind { weight, first_moment, second_moment };

struct UpdateOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.1;
  double clip = 1;        // 0: off
  std::int64_t step = 1;  // counted from 1
};

class Parameters {
 public:
  Parameters(Groups& groups, Keeping keeping) : groups_(groups), keeping_(keeping) {}
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  Storage& add(std::vector<model::Tensor> tensors, Role role = Role::single);
  // Which part of a tensor this slice has.
  Slot slot_of(const model::Tensor& tensor, Role role) const;

  // Values for a box of a tensor, row after row.
  using Source = std::function<void(Kind, const model::Tensor&, const checkpoint::Box&, std::span<float>)>;
  // Sets all that this rank owns; the others do not hear of it yet.
  void fill(const Source& source, bool with_moments);
  // All ranks together, after they have filled theirs: the weights are everywhere.
  void publish();

  // Clips by the norm over the whole model, takes one step; the norm before clipping.
  double update(const UpdateOptions& options);

  // What this rank saves: together the ranks save everything once.
  struct Saved {
    Kind kind;
    const model::Tensor* tensor;
    checkpoint::Box box;
    at::Tensor values;  // a view, f32
  };
  std::vector<Saved> saved();

  const Keeping& keeping() const { return keeping_; }
  Groups& groups() { return groups_; }
  std::int64_t bytes() const;

 private:
  friend class Storage;
  at::Tensor take(std::int64_t count);
  void give(at::Tensor buffer);
  void settle(std::size_t pending_max);
  void finish_gradients();
  void sum_partial_gradients();
  double squared_norm();
  at::Tensor owned_gradient(Storage& storage);

  Groups& groups_;
  Keeping keeping_;
  std::vector<std::unique_ptr<Storage>> storages_;
  std::vector<at::Tensor> pool_;
  std::deque<Storage*> folding_;  // oldest first
};

// Values of a new model: the same for every mesh, as each element depends on the seed, the tensor's name and
// its place alone.
Parameters::Source initial_values(std::uint64_t seed);

}  // namespace tutti::train
