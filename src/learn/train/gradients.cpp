#include "learn/train/gradients.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "learn/train/math.hpp"

namespace tutti::train {
namespace {

// Reductions of earlier units may still run while the next ones are computed.
constexpr std::size_t reductions_beside_max = 2;

}  // namespace

Gradients::Gradients(Workspace& workspace, const Layout& layout, const Range& owned)
    : workspace_(workspace), count_(layout.count()), owned_(owned), touched_(layout.slots().size()) {
  const Keeping& keeping = workspace.keeping();
  if (reduces_each_microbatch()) {
    accumulated_ = at::zeros({owned.count()}, at::TensorOptions(keeping.device).dtype(at::kFloat));
    return;
  }
  current_ = flat_memory(count_, keeping.type, keeping.device);
  // Sums of many are f32, over microbatches and over ranks alike.
  const bool summed = keeping.microbatches > 1 || workspace.groups().mesh.size() > 1;
  if (keeping.type != at::kFloat && summed) {
    accumulated_ = flat_memory(count_, at::kFloat, keeping.device);
  }
}

// Memory for the view's gradient; whether nothing is in it yet.
bool Gradients::touch(const View& view) {
  if (!current_.defined()) {
    workspace_.settle(reductions_beside_max);
    current_ = workspace_.take(count_, workspace_.keeping().type);
  }
  const bool first = !touched_[view.slot];
  for (std::size_t i = 0; i < view.slots; ++i) touched_[view.slot + i] = true;
  return first;
}

void Gradients::add_product(const View& view, const at::Tensor& dy, const at::Tensor& x) {
  const bool first = touch(view);
  shaped(current_, view).addmm_(dy.t(), x, first ? 0 : 1, 1);
}

at::Tensor Gradients::of(const View& view) {
  const bool first = touch(view);
  at::Tensor gradient = shaped(current_, view);
  if (first) gradient.zero_();
  return gradient;
}

void Gradients::accumulate(const at::Tensor& more) {
  if (accumulated_touched_) {
    math::add(more, accumulated_);
  } else {
    accumulated_.copy_(more);
  }
  accumulated_touched_ = true;
}

void Gradients::backward_done(bool last) {
  TUTTI_CHECK(std::find(touched_.begin(), touched_.end(), false) == touched_.end(),
              "every tensor has a gradient after its unit's backward pass");
  Group& data = workspace_.groups().data;
  if (reduces_each_microbatch()) {
    touched_.assign(touched_.size(), false);
    at::Tensor buffer = std::move(current_);
    current_.reset();
    if (buffer.scalar_type() != at::kFloat && data.size() > 1) {
      at::Tensor exact = workspace_.take(count_, at::kFloat);
      exact.copy_(buffer);
      workspace_.give(std::exchange(buffer, std::move(exact)));
    }
    Pending reducing = data.begin_reduce_scatter(buffer);
    workspace_.reduce_beside(std::move(reducing), std::move(buffer),
                             [this](const at::Tensor& sums) { accumulate(sliced(sums, owned_)); });
    return;
  }
  if (accumulated_.defined()) {
    accumulate(current_);
    accumulated_touched_ = !last;
  }
  if (last || accumulated_.defined()) touched_.assign(touched_.size(), false);
  if (!last) return;
  at::Tensor& sum = accumulated_.defined() ? accumulated_ : current_;
  reducing_ =
      workspace_.keeping().zero == Zero::none ? data.begin_all_reduce(sum) : data.begin_reduce_scatter(sum);
}

void Gradients::finish() {
  reducing_.wait();
  accumulated_touched_ = false;
}

at::Tensor Gradients::owned() const {
  if (reduces_each_microbatch()) return accumulated_;
  return sliced(accumulated_.defined() ? accumulated_ : current_, owned_);
}

std::int64_t Gradients::bytes() const {
  std::int64_t sum = 0;
  for (const at::Tensor* tensor : {&current_, &accumulated_}) {
    if (tensor->defined()) sum += static_cast<std::int64_t>(tensor->nbytes());
  }
  return sum;
}

}  // namespace tutti::train
