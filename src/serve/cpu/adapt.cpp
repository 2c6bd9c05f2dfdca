// What adapters add to a product, in two phases: each row is shrunk to as many numbers as its adapter's rank,
// and those are expanded into the product's own. Rows of one adapter go together; rows without one are in no
// slice, and a step without any has no such phases.
#include <algorithm>

#include "serve/cpu/forward.hpp"

namespace tutti::serve::cpu {
namespace {

// Rows that one thread takes at a time, and panels of what they are expanded into.
constexpr std::int64_t slice_rows = 32;
constexpr std::int64_t expanded_panels = 16;

}  // namespace

void Forward::slice_adapters() {
  slices_.clear();
  for (std::int64_t at = 0; at < count_; ++at) {
    const std::int32_t adapter = tokens_[static_cast<std::size_t>(at)].adapter;
    if (adapter == 0) continue;
    const bool goes_on = !slices_.empty() && slices_.back().adapter == adapter &&
                         slices_.back().first + slices_.back().rows == at && slices_.back().rows < slice_rows;
    if (goes_on) {
      ++slices_.back().rows;
    } else {
      slices_.push_back({adapter, at, 1});
    }
  }
}

void Forward::adapt(Member& member, std::int64_t layer, lora::Product product, const Matrix& matrix,
                    const Input& input, const Output& output) const {
  if (slices_.empty()) return;
  const auto slices = static_cast<std::int64_t>(slices_.size());
  const std::int64_t shrunk_panels = shrunk_stride_ / panel_rows;
  member.share(slices * shrunk_panels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const AdapterSlice& slice = slices_[static_cast<std::size_t>(at / shrunk_panels)];
      const ProductChange& change = adapters_.change(slice.adapter, layer, product);
      const std::int64_t panel = at % shrunk_panels;
      if (panel >= change.shrink.panels) continue;
      multiply(change.shrink, panel, panel + 1,
               {input.values + slice.first * input.stride, input.stride, slice.rows},
               {shrunk_ + slice.first * shrunk_stride_, shrunk_stride_});
    }
  });
  const std::int64_t pieces = (matrix.panels + expanded_panels - 1) / expanded_panels;
  member.share(slices * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const AdapterSlice& slice = slices_[static_cast<std::size_t>(at / pieces)];
      const std::int64_t first = at % pieces * expanded_panels;
      for (const auto& expand : adapters_.change(slice.adapter, layer, product).expands) {
        const std::int64_t begin_panel = std::max<std::int64_t>(0, first - expand.first_panel);
        const std::int64_t end_panel =
            std::min(first + expanded_panels - expand.first_panel, expand.matrix.panels);
        if (begin_panel >= end_panel) continue;
        const float* const shrunk = shrunk_ + slice.first * shrunk_stride_ + expand.first_column;
        float* const out = output.values + slice.first * output.stride + expand.first_panel * panel_rows;
        multiply(expand.matrix, begin_panel, end_panel, {shrunk, shrunk_stride_, slice.rows},
                 {out, output.stride, nullptr, true});
      }
    }
  });
}

}  // namespace tutti::serve::cpu
