#include "learn/train/experts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include "base/check.hpp"

namespace tutti::train {

Experts::Experts(const model::Shape& shape, Storage& storage, std::int64_t layer)
    : shape_(shape),
      storage_(storage),
      router_(storage.view({model::weight_of(model::names_of_layer(shape, layer).router)})) {
  TUTTI_CHECK(!shape.mlp_bias, "no family has biases in its experts");
  for (std::int64_t i = 0; i < shape.experts.count; ++i) {
    const model::FeedForwardNames names = model::names_of_expert(shape, layer, i);
    std::vector<std::string> up{model::weight_of(names.up)};
    if (shape.gated) up.insert(up.begin(), model::weight_of(names.gate));
    experts_.push_back({storage.view(up), storage.view({model::weight_of(names.down)})});
  }
}

void Experts::route(const at::Tensor& x, Tape& tape) const {
  const at::Tensor logits = math::linear(x, storage_.weight(router_));
  tape.probabilities = at::softmax(logits, 1, at::kFloat);
  std::tie(tape.weights, tape.chosen) = at::topk(tape.probabilities, shape_.experts.chosen, 1);
  if (shape_.experts.normalized) tape.weights = tape.weights / tape.weights.sum(1, true);
  const at::Tensor expert_of_place = tape.chosen.reshape({-1});
  tape.order = std::get<1>(at::sort(expert_of_place, /*stable=*/true, /*dim=*/0, /*descending=*/false));
  tape.places = at::empty_like(tape.order);
  tape.places.index_copy_(0, tape.order, at::arange(tape.order.numel(), tape.order.options()));
  const at::Tensor ends = at::bincount(expert_of_place, {}, shape_.experts.count).cumsum(0).to(at::kCPU);
  tape.ends.assign(ends.data_ptr<std::int64_t>(), ends.data_ptr<std::int64_t>() + ends.numel());
}

at::Tensor Experts::rows_of(const Tape& tape) const {
  return at::floor_divide(tape.order, shape_.experts.chosen);
}

at::Tensor Experts::sum_of_places(const at::Tensor& values, const Tape& tape) const {
  return values.index_select(0, tape.places).view({-1, shape_.experts.chosen, values.size(1)}).sum(1);
}

at::Tensor Experts::forward(const at::Tensor& x, Tape& tape) const {
  route(x, tape);
  tape.inputs = x.index_select(0, rows_of(tape));
  const std::int64_t places = tape.inputs.size(0);
  tape.hidden = at::empty({places, experts_.front().up.rows}, x.options());
  tape.outputs = at::empty({places, x.size(1)}, x.options());
  for_experts(tape, [&](const Expert& expert, std::int64_t begin, std::int64_t end) {
    at::Tensor hidden = tape.hidden.slice(0, begin, end);
    at::mm_out(hidden, tape.inputs.slice(0, begin, end), storage_.weight(expert.up).t());
  });
  tape.activated = math::activate(tape.hidden, shape_.activation, shape_.gated);
  for_experts(tape, [&](const Expert& expert, std::int64_t begin, std::int64_t end) {
    at::Tensor output = tape.outputs.slice(0, begin, end);
    at::mm_out(output, tape.activated.slice(0, begin, end), storage_.weight(expert.down).t());
  });
  const at::Tensor weights = tape.weights.reshape({-1}).index_select(0, tape.order).to(x.scalar_type());
  return sum_of_places(tape.outputs * weights.unsqueeze(1), tape);
}

// From the gradient of the weights to that of the router's logits. Through the division by their sum, where
// there is one, and through the softmax.
at::Tensor Experts::router_backward(const at::Tensor& dweights, const Tape& tape) const {
  at::Tensor dchosen = dweights;
  if (shape_.experts.normalized) {
    const at::Tensor sum = tape.probabilities.gather(1, tape.chosen).sum(1, true);
    dchosen = (dweights - (dweights * tape.weights).sum(1, true)) / sum;
  }
  const at::Tensor dprobabilities = at::zeros_like(tape.probabilities).scatter_(1, tape.chosen, dchosen);
  return tape.probabilities * (dprobabilities - (dprobabilities * tape.probabilities).sum(1, true));
}

at::Tensor Experts::backward(const at::Tensor& dy, const at::Tensor& x, const Tape& tape) {
  const at::Tensor dplaces = dy.index_select(0, rows_of(tape));
  const at::Tensor dweights = (dplaces.to(at::kFloat) * tape.outputs.to(at::kFloat))
                                  .sum(1)
                                  .index_select(0, tape.places)
                                  .view_as(tape.weights);
  const at::Tensor weights = tape.weights.reshape({-1}).index_select(0, tape.order).to(dy.scalar_type());
  const at::Tensor doutputs = dplaces * weights.unsqueeze(1);
  at::Tensor dactivated = at::empty_like(tape.activated);
  for_experts(tape, [&](const Expert& expert, std::int64_t begin, std::int64_t end) {
    const at::Tensor doutput = doutputs.slice(0, begin, end);
    at::Tensor some = dactivated.slice(0, begin, end);
    at::mm_out(some, doutput, storage_.weight(expert.down));
    storage_.add_product(expert.down, doutput, tape.activated.slice(0, begin, end));
  });
  const at::Tensor dhidden =
      math::activate_backward(tape.hidden, std::move(dactivated), shape_.activation, shape_.gated, {});
  at::Tensor dinputs = at::empty_like(tape.inputs);
  for_experts(tape, [&](const Expert& expert, std::int64_t begin, std::int64_t end) {
    const at::Tensor some = dhidden.slice(0, begin, end);
    at::Tensor dinput = dinputs.slice(0, begin, end);
    at::mm_out(dinput, some, storage_.weight(expert.up));
    storage_.add_product(expert.up, some, tape.inputs.slice(0, begin, end));
  });
  const at::Tensor dlogits = router_backward(dweights, tape).to(x.scalar_type());
  storage_.add_product(router_, dlogits, x);
  return sum_of_places(dinputs, tape).add_(math::linear_backward(dlogits, storage_.weight(router_)));
}

}  // namespace tutti::train
