// The ranks along one direction of the mesh, speaking in tensors. A group of one does nothing, at no cost.
// One thread, as the order of the calls must be the same on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "comm/communicator.hpp"
#include "learn/plan/mesh.hpp"

namespace tutti::train {

comm::DataType data_type(at::ScalarType type);

// An operation under way on a tensor, which stays alive until it is over.
class Pending {
 public:
  Pending() = default;
  Pending(comm::Work work, at::Tensor kept) : work_(std::move(work)), kept_(std::move(kept)) {}
  Pending(Pending&& other) noexcept { *this = std::move(other); }
  Pending& operator=(Pending&& other) noexcept;
  // Waits, as the operation touches the tensor's memory; how it ended is then of no interest.
  ~Pending() { drop(); }

  // Throws Failure.
  void wait();
  bool done() const { return !work_ || work_->done(); }

 private:
  void drop() noexcept;
  std::optional<comm::Work> work_;
  at::Tensor kept_;
};

class Group {
 public:
  Group() = default;  // of one
  explicit Group(comm::Communicator communicator) : communicator_(std::move(communicator)) {}

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  int size() const { return communicator_ ? communicator_->size() : 1; }

  // Throws Failure if what lies on the device cannot be believed: a rank is missing, and its part is garbage.
  void check() const;

  void all_reduce(at::Tensor& data, comm::Reduction reduction = comm::Reduction::sum);
  Pending begin_all_reduce(at::Tensor& data);
  // Of a flat tensor: afterwards the rank's own part holds the sum over all ranks.
  Pending begin_reduce_scatter(at::Tensor& data);
  // Of a flat tensor whose part of this rank is there: afterwards all of it is.
  Pending begin_all_gather(at::Tensor& data);
  Pending begin_all_gather(const at::Tensor& part, at::Tensor& whole);

  // Each rank has some of the rows: all of them, in the order of the ranks.
  at::Tensor gather_rows(const at::Tensor& rows);
  // Each rank has a summand of all rows: this rank's rows of the sum.
  at::Tensor scatter_rows(const at::Tensor& summand);

  Pending begin_send(const at::Tensor& data, int to);
  Pending begin_receive(at::Tensor& data, int from);

 private:
  std::optional<comm::Communicator> communicator_;
};

// All groups that a rank is in.
struct Groups {
  plan::Mesh mesh;
  plan::Place place;
  Group world;
  Group data;      // same slice and stage: gradients meet
  Group tensor;    // same replica and stage: each has a slice of every layer
  Group pipeline;  // same replica and slice, in the order of the stages
  Group model;     // same replica: together they hold the model once
  Group ends;      // the first and the last stage of a pipeline, where both hold the embedding; else of one

  static Groups make(comm::Communicator world, const plan::Mesh& mesh);
};

}  // namespace tutti::train
