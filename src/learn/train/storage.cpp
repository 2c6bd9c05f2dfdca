#include "learn/train/storage.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include "base/check.hpp"

namespace tutti::train {

Storage::Storage(Workspace& workspace, Layout layout)
    : workspace_(workspace),
      layout_(std::move(layout)),
      owned_(workspace.keeping().zero == Zero::none ? layout_.whole()
                                                    : layout_.part(workspace.groups().data.rank())),
      gradients_(workspace, layout_, owned_) {
  const Keeping& keeping = workspace.keeping();
  if (keeping.zero == Zero::parameters) {
    own_weights_ = flat_memory(owned_.count(), keeping.type, keeping.device);
  } else {
    weights_ = flat_memory(layout_.count(), keeping.type, keeping.device);
    own_weights_ = sliced(weights_, owned_);
  }
  const auto exact = at::TensorOptions(keeping.device).dtype(at::kFloat);
  master_ = keeping.type == at::kFloat ? own_weights_ : at::zeros({owned_.count()}, exact);
  first_ = at::zeros({owned_.count()}, exact);
  second_ = at::zeros({owned_.count()}, exact);
}

void Storage::foresee() {
  if (workspace_.keeping().zero != Zero::parameters || weights_.defined()) return;
  weights_ = workspace_.take(layout_.count(), workspace_.keeping().type);
  gathering_ = workspace_.groups().data.begin_all_gather(own_weights_, weights_);
}

void Storage::open() {
  foresee();
  gathering_.wait();
  ++open_;
}

void Storage::close() {
  TUTTI_CHECK(open_ > 0);
  if (--open_ > 0 || workspace_.keeping().zero != Zero::parameters) return;
  workspace_.give(weights_);
  weights_.reset();
}

const at::Tensor& Storage::values(Kind kind) const {
  switch (kind) {
    case Kind::weight:
      return master_;
    case Kind::first_moment:
      return first_;
    case Kind::second_moment:
      return second_;
  }
  return master_;
}

void Storage::update(math::AdamStep step) {
  const at::Tensor gradient = gradients_.owned();
  const auto apply = [&](const Range& range) {
    if (range.count() == 0) return;
    math::adamw(step, sliced(gradient, range), sliced(master_, range), sliced(first_, range),
                sliced(second_, range), sliced(own_weights_, range));
  };
  const Range decaying = inside(layout_.decaying(), owned_);
  apply(decaying);
  step.decay = 0;
  apply({decaying.end, owned_.count()});
  share();
}

void Storage::publish() {
  if (has_master()) own_weights_.copy_(master_);
  share();
}

// Without ZeRO everybody has updated everything; with ZeRO 3 the weights are fetched when they are used.
void Storage::share() {
  const Zero zero = workspace_.keeping().zero;
  if (zero == Zero::optimizer || zero == Zero::gradients) {
    gathering_ = workspace_.groups().data.begin_all_gather(weights_);
  }
}

std::int64_t Storage::bytes() const {
  std::int64_t sum = gradients_.bytes();
  for (const at::Tensor* tensor : {&weights_, &first_, &second_}) {
    if (tensor->defined()) sum += static_cast<std::int64_t>(tensor->nbytes());
  }
  if (has_master()) sum += static_cast<std::int64_t>(master_.nbytes());
  return sum;
}

}  // namespace tutti::train
