// What the units of a rank share: how parameters are kept, whom the rank talks to, memory that comes and
// goes, and the reductions that run beside the computation. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <vector>

#include "learn/train/group.hpp"
#include "learn/train/layout.hpp"

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
// A part of it, as the matrix or vector that it is.
at::Tensor shaped(const at::Tensor& flat, const View& view);
at::Tensor sliced(const at::Tensor& flat, const Range& range);

class Workspace {
 public:
  Workspace(Groups& groups, const Keeping& keeping) : groups_(groups), keeping_(keeping) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Groups& groups() { return groups_; }
  const Keeping& keeping() const { return keeping_; }

  // Flat memory for a while; whatever was in it is still there.
  at::Tensor take(std::int64_t count, at::ScalarType type);
  void give(at::Tensor buffer);

  // A buffer that is being reduced. Once it is, `then` takes the sum from it; the buffer is given back.
  void reduce_beside(Pending reducing, at::Tensor buffer, std::function<void(const at::Tensor&)> then);
  // Ends the oldest of them until so many are left.
  void settle(std::size_t left_max);

 private:
  struct Reduction {
    Pending reducing;
    at::Tensor buffer;
    std::function<void(const at::Tensor&)> then;
  };

  Groups& groups_;
  Keeping keeping_;
  std::vector<at::Tensor> pool_;
  std::deque<Reduction> reductions_;  // oldest first
};

}  // namespace tutti::train
