#include "learn/train/group.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "base/check.hpp"
#include "learn/train/failure.hpp"

namespace tutti::train {
namespace {

std::size_t count_of(const at::Tensor& data) { return static_cast<std::size_t>(data.numel()); }

}  // namespace

comm::DataType data_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return comm::DataType::f32;
    case at::kDouble:
      return comm::DataType::f64;
    case at::kHalf:
      return comm::DataType::f16;
    case at::kBFloat16:
      return comm::DataType::bf16;
    case at::kInt:
      return comm::DataType::i32;
    case at::kLong:
      return comm::DataType::i64;
    case at::kByte:
      return comm::DataType::u8;
    default:
      throw Failure(failed("this type of tensor does not travel"));
  }
}

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this == &other) return *this;
  drop();
  work_ = std::exchange(other.work_, std::nullopt);
  kept_ = std::move(other.kept_);
  return *this;
}

void Pending::drop() noexcept {
  if (work_) static_cast<void>(work_->wait().ok());
  work_.reset();
}

void Pending::wait() {
  if (!work_) return;
  auto done = work_->wait();
  work_.reset();
  kept_.reset();
  require(std::move(done));
}

void Group::check() const {
  if (communicator_) require(communicator_->check());
}

void Group::all_reduce(at::Tensor& data, comm::Reduction reduction) {
  if (!communicator_) return;
  TUTTI_CHECK(data.is_contiguous());
  require(communicator_
              ->all_reduce(data.data_ptr(), data.data_ptr(), count_of(data), data_type(data.scalar_type()),
                           reduction)
              .wait());
}

Pending Group::begin_all_reduce(at::Tensor& data) {
  if (!communicator_) return {};
  TUTTI_CHECK(data.is_contiguous());
  return {communicator_->all_reduce(data.data_ptr(), data.data_ptr(), count_of(data),
                                    data_type(data.scalar_type()), comm::Reduction::sum),
          data};
}

Pending Group::begin_reduce_scatter(at::Tensor& data) {
  if (!communicator_) return {};
  const at::Tensor part = data.chunk(size())[static_cast<std::size_t>(rank())];
  return {communicator_->reduce_scatter(data.data_ptr(), part.data_ptr(), count_of(part),
                                        data_type(data.scalar_type()), comm::Reduction::sum),
          data};
}

Pending Group::begin_all_gather(at::Tensor& data) {
  if (!communicator_) return {};
  return begin_all_gather(data.chunk(size())[static_cast<std::size_t>(rank())], data);
}

Pending Group::begin_all_gather(const at::Tensor& part, at::Tensor& whole) {
  if (!communicator_) {
    if (part.data_ptr() != whole.data_ptr()) whole.copy_(part);
    return {};
  }
  return {communicator_->all_gather(part.data_ptr(), whole.data_ptr(), count_of(part),
                                    data_type(part.scalar_type())),
          whole};
}

at::Tensor Group::gather_rows(const at::Tensor& rows) {
  if (!communicator_) return rows;
  const at::Tensor mine = rows.contiguous();
  at::Tensor all = at::empty({mine.size(0) * size(), mine.size(1)}, mine.options());
  require(communicator_
              ->all_gather(mine.data_ptr(), all.data_ptr(), count_of(mine), data_type(mine.scalar_type()))
              .wait());
  return all;
}

at::Tensor Group::scatter_rows(const at::Tensor& summand) {
  if (!communicator_) return summand;
  TUTTI_CHECK(summand.is_contiguous() && summand.size(0) % size() == 0);
  at::Tensor mine = at::empty({summand.size(0) / size(), summand.size(1)}, summand.options());
  require(communicator_
              ->reduce_scatter(summand.data_ptr(), mine.data_ptr(), count_of(mine),
                               data_type(summand.scalar_type()), comm::Reduction::sum)
              .wait());
  return mine;
}

Pending Group::begin_send(const at::Tensor& data, int to) {
  TUTTI_CHECK(communicator_ && data.is_contiguous());
  return {communicator_->send(data.data_ptr(), count_of(data), data_type(data.scalar_type()), to), data};
}

Pending Group::begin_receive(at::Tensor& data, int from) {
  TUTTI_CHECK(communicator_ && data.is_contiguous());
  return {communicator_->recv(data.data_ptr(), count_of(data), data_type(data.scalar_type()), from), data};
}

Groups Groups::make(comm::Communicator world, const plan::Mesh& mesh) {
  Groups groups;
  groups.mesh = mesh;
  groups.place = plan::place_of(mesh, world.rank());
  const plan::Place at = groups.place;
  const int rank = world.rank();
  // Every rank takes part in every split; a direction of length one needs no group.
  const auto split = [&](int length, int color, const char* name) {
    return length == 1 ? Group() : Group(require(world.split(color, rank, name)));
  };
  groups.tensor = split(mesh.tensor, rank / mesh.tensor, "tensor");
  groups.data = split(mesh.data, at.stage * mesh.tensor + at.slice, "data");
  groups.pipeline = split(mesh.pipeline, at.replica * mesh.tensor + at.slice, "pipeline");
  groups.model = split(mesh.tensor * mesh.pipeline, at.replica, "model");
  if (mesh.pipeline > 1) {
    const bool end = at.stage == 0 || at.stage == mesh.pipeline - 1;
    // Those between the ends get groups of their own, which nobody uses.
    const int color = end ? at.replica * mesh.tensor + at.slice : mesh.data * mesh.tensor + rank;
    Group ends(require(world.split(color, rank, "ends")));
    if (end) groups.ends = std::move(ends);
  }
  if (world.size() > 1) groups.world = Group(std::move(world));
  return groups;
}

}  // namespace tutti::train
