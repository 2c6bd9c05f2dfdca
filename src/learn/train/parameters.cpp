#include "learn/train/parameters.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

namespace tutti::train {

Storage& Parameters::add(std::vector<model::Tensor> tensors, Role role) {
  const Groups& groups = workspace_.groups();
  const Cut cut{.slices = groups.mesh.tensor,
                .slice = groups.place.slice,
                .vocabulary_multiple = math::vocabulary_multiple(workspace_.keeping().device)};
  storages_.push_back(
      std::make_unique<Storage>(workspace_, Layout(std::move(tensors), role, cut, groups.data.size())));
  return *storages_.back();
}

void Parameters::fill(const Source& source, bool with_moments) {
  for (const auto& storage : storages_) {
    const auto set = [&](Kind kind) {
      at::Tensor values = at::zeros({storage->owned().count()}, at::kFloat);
      auto* const data = values.data_ptr<float>();
      for (const Piece& piece : storage->layout().pieces(storage->owned())) {
        source(kind, piece.slot->tensor, piece.box, {data + piece.at, static_cast<std::size_t>(piece.count)});
      }
      storage->values(kind).copy_(values);
    };
    set(Kind::weight);
    if (with_moments) {
      set(Kind::first_moment);
      set(Kind::second_moment);
    }
  }
}

void Parameters::publish() {
  for (const auto& storage : storages_) storage->publish();
}

// What is whole on every slice was computed from some of the rows on each: the sums meet in one message.
void Parameters::sum_partial_gradients() {
  Group& tensor = workspace_.groups().tensor;
  if (tensor.size() == 1) return;
  std::vector<at::Tensor> partial;
  for (const auto& storage : storages_) {
    const at::Tensor owned = storage->gradients().owned();
    for (const Slot& slot : storage->layout().slots()) {
      const Range range = inside({slot.begin, slot.end()}, storage->owned());
      if (slot.partial && range.count() > 0) partial.push_back(sliced(owned, range));
    }
  }
  if (partial.empty()) return;
  at::Tensor together = at::cat(partial);
  tensor.all_reduce(together);
  std::int64_t at = 0;
  for (at::Tensor& one : partial) {
    one.copy_(together.slice(0, at, at + one.numel()));
    at += one.numel();
  }
}

// Where the first and the last stage both hold the embedding, each has the gradient of its use of it.
void Parameters::sum_tied_gradients() {
  Group& ends = workspace_.groups().ends;
  if (ends.size() == 1) return;
  for (const auto& storage : storages_) {
    if (storage->layout().role() == Role::single) continue;
    at::Tensor gradient = storage->gradients().owned();
    ends.all_reduce(gradient);
  }
}

void Parameters::finish_gradients() {
  workspace_.settle(0);
  for (const auto& storage : storages_) storage->gradients().finish();
  sum_partial_gradients();
  sum_tied_gradients();
}

double Parameters::squared_norm() {
  std::vector<at::Tensor> sums;
  for (const auto& storage : storages_) {
    const at::Tensor owned = storage->gradients().owned();
    for (const Range& run : storage->layout().ours()) {
      const Range range = inside(run, storage->owned());
      if (range.count() > 0) sums.push_back(math::sum_of_squares(sliced(owned, range)));
    }
  }
  at::Tensor sum = at::stack(sums).sum().to(at::kCPU).reshape({1});
  // Without ZeRO every replica has all of it.
  Groups& groups = workspace_.groups();
  (workspace_.keeping().zero == Zero::none ? groups.model : groups.world).all_reduce(sum);
  return sum.item<double>();
}

// Replicas that add up by themselves must not differ on whether a step is taken.
bool Parameters::finite_everywhere(double norm) {
  at::Tensor bad = at::full({1}, std::isfinite(norm) ? 0.0 : 1.0, at::kDouble);
  Groups& groups = workspace_.groups();
  if (workspace_.keeping().zero == Zero::none) groups.data.all_reduce(bad);
  return bad.item<double>() == 0;
}

double Parameters::update(const UpdateOptions& options) {
  finish_gradients();
  const double norm = std::sqrt(squared_norm());
  if (!finite_everywhere(norm) || !options.take) return std::numeric_limits<double>::quiet_NaN();
  const math::AdamStep step{
      .learning_rate = options.learning_rate,
      .beta1 = options.beta1,
      .beta2 = options.beta2,
      .epsilon = options.epsilon,
      .decay = options.decay,
      .gradient_scale = options.clip > 0 && norm > options.clip ? options.clip / norm : 1.0,
      .step = options.step};
  for (const auto& storage : storages_) storage->update(step);
  return norm;
}

std::vector<Parameters::Saved> Parameters::saved() {
  std::vector<Saved> all;
  for (const auto& storage : storages_) {
    // Each replica saves its part, also where all of them have everything.
    const Range part = storage->layout().part(workspace_.groups().data.rank());
    const std::int64_t first = part.begin - storage->owned().begin;
    for (const Piece& piece : storage->layout().pieces(part)) {
      if (!piece.slot->ours) continue;
      const Range range{first + piece.at, first + piece.at + piece.count};
      for (const Kind kind : {Kind::weight, Kind::first_moment, Kind::second_moment}) {
        all.push_back({kind, &piece.slot->tensor, piece.box, sliced(storage->values(kind), range)});
      }
    }
  }
  return all;
}

std::int64_t Parameters::bytes() const {
  std::int64_t sum = 0;
  for (const auto& storage : storages_) sum += storage->bytes();
  return sum;
}

}  // namespace tutti::train
