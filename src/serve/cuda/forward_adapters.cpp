// What adapters add to the products of a layer. Where a model has some, norms and activations are launches of
// their own, so that there is something to add to, and something to add it from.
#include "serve/cuda/forward.hpp"

namespace tutti::serve::cuda {

void Forward::project(const Step& step, const Matrix& matrix, const void* values, void* out, bool to_stream) {
  // The first rank adds to the stream, the others put what they have in its place.
  const bool adds = to_stream && is_first();
  if (!step.few) return multiply(step, matrix, values, step.tokens, out, to_stream, adds);
  multiply_few({.rows = step.view.tokens.count,
                .values = values,
                .columns = matrix.columns,
                .weights = matrix.data,
                .scales = matrix.scales,
                .features = matrix.rows,
                .out = to_stream ? nullptr : out,
                .added_to = adds ? static_cast<float*>(out) : nullptr,
                .floats = to_stream && !adds ? static_cast<float*>(out) : nullptr,
                .out_stride = matrix.rows},
               step.queue);
}

void Forward::adapt(const Step& step, const LayerWeights& layer, lora::Product product, const void* values,
                    std::int64_t columns, void* out, std::int64_t out_stride) {
  const LoraChange* const changes = layer.adapters[static_cast<std::size_t>(product)];
  if (changes == nullptr) return;
  const bool adds = product == lora::Product::output || product == lora::Product::down;
  LoraProduct job{.type = type_,
                  .rows = step.view.tokens.count,
                  .adapter = step.view.tokens.adapter,
                  .changes = changes,
                  .rank_max = adapter_rank_,
                  .columns = columns,
                  .values = values,
                  .shrunk = scratch_.shrunk,
                  .out = adds ? nullptr : out,
                  .added_to = adds ? static_cast<float*>(out) : nullptr,
                  .out_stride = out_stride};
  // The gate is above the other half, which is padded; queries, keys and values stand side by side.
  const auto parts = lora::parts_of(product);
  job.parts = static_cast<std::int32_t>(parts.size());
  std::int64_t feature = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (parts[part] == lora::Part::gate && !shape_.gated) continue;
    job.first_feature[part] = feature;
    job.features[part] = lora::size_of(shape_, parts[part]).rows;
    feature += product == lora::Product::up ? sizes_.width : job.features[part];
  }
  add_lora(job, step.queue);
}

}  // namespace tutti::serve::cuda
