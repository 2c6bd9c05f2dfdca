// The types of weights that are compared.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "learn/model/names.hpp"
#include "serve/cpu/reference_test.hpp"
#include "serve/cuda/kernels/fp8.hpp"
#include "serve/cuda/model.hpp"

namespace tutti::serve {

struct CheckedKind {
  const char* name;
  cuda::Type type;
  bool is_fp8 = false;
};
inline constexpr CheckedKind checked_kinds[] = {
    {"f32", cuda::Type::f32}, {"bf16", cuda::Type::bf16}, {"fp8", cuda::Type::bf16, true}};

// The model whose matrices are what a GPU has of them in fp8: beside it only the rounding of bf16 is seen.
inline cpu::MadeTensors rounded_to_fp8(const model::Shape& shape, cpu::MadeTensors tensors) {
  const auto round = [&](const std::string& part) {
    const auto found = tensors.find(model::weight_of(part));
    if (found == tensors.end()) return;  // a gate where there is none
    cpu::MadeTensor& tensor = found->second;
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    std::vector<std::uint8_t> codes(columns);
    for (std::size_t first = 0; first < tensor.values.size(); first += columns) {
      const auto row = std::span(tensor.values).subspan(first, columns);
      const float scale = cuda::fp8_from_row(row, codes);
      for (std::size_t at = 0; at < columns; ++at) row[at] = cuda::fp8_to_float(codes[at]) * scale;
    }
  };
  const auto round_all = [&](const model::FeedForwardNames& names) {
    for (const std::string& part : {names.gate, names.up, names.down}) round(part);
  };
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const model::LayerNames names = model::names_of_layer(shape, layer);
    for (const std::string& part : {names.queries, names.keys, names.values, names.output}) round(part);
    if (!shape.has_experts(layer)) {
      round_all(names.feed_forward);
      continue;
    }
    for (std::int64_t expert = 0; expert < shape.experts.count; ++expert)
      round_all(model::names_of_expert(shape, layer, expert));
  }
  return tensors;
}

}  // namespace tutti::serve
