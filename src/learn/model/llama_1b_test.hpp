// The model that measurements and plans of memory are made with: a Llama of 1.1 billion weights.
#pragma once

#include <cstdint>

#include "learn/model/shape.hpp"

namespace tutti::model {

inline Shape llama_1b(std::int64_t context) {
  return {.model_type = "llama",
          .vocabulary = 32000,
          .layers = 22,
          .hidden = 2048,
          .heads = 32,
          .kv_heads = 4,
          .head_size = 64,
          .intermediate = 5632,
          .context = context,
          .norm = Norm::rms,
          .activation = Activation::silu,
          .gated = true,
          .tied = false};
}

}  // namespace tutti::model
