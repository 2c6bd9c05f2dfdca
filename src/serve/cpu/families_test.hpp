// Small models that have, between them, every feature of a shape.
#pragma once

#include <string>
#include <vector>

#include "learn/model/shape.hpp"

namespace tutti::serve::cpu {

struct Family {
  std::string name;
  model::Shape shape;
};

inline model::Shape small_llama() {
  return {.model_type = "llama",
          .vocabulary = 101,
          .layers = 2,
          .hidden = 64,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 16,
          .intermediate = 96,
          .context = 128,
          .norm = model::Norm::rms,
          .norm_epsilon = 1e-5,
          .activation = model::Activation::silu,
          .gated = true,
          .tied = false};
}

// Sizes that fill neither a panel nor a block are among them.
inline std::vector<Family> small_families() {
  std::vector<Family> all;
  model::Shape gpt2{.vocabulary = 77,
                    .layers = 2,
                    .hidden = 60,
                    .heads = 3,
                    .kv_heads = 3,
                    .head_size = 20,
                    .intermediate = 100,
                    .context = 96,
                    .learned_positions = true,
                    .qkv_bias = true,
                    .output_bias = true,
                    .mlp_bias = true};
  all.push_back({"gpt2", gpt2});
  gpt2.activation = model::Activation::gelu;
  all.push_back({"gelu", gpt2});
  all.push_back({"llama", small_llama()});
  model::Shape stretched = small_llama();
  stretched.rope = {.kind = model::Rope::Kind::llama3,
                    .theta = 500000,
                    .factor = 8,
                    .low_frequency_factor = 1,
                    .high_frequency_factor = 4,
                    .original_context = 32};
  stretched.tied = true;
  all.push_back({"llama3", stretched});
  stretched.rope = {.kind = model::Rope::Kind::yarn,
                    .factor = 4,
                    .original_context = 24,
                    .beta_fast = 2,
                    .beta_slow = 0.25,
                    .attention_factor = 1.14};
  all.push_back({"yarn", stretched});
  model::Shape mistral = small_llama();
  mistral.model_type = "mistral";
  mistral.window = 7;
  all.push_back({"mistral", mistral});
  model::Shape qwen2 = small_llama();
  qwen2.model_type = "qwen2";
  qwen2.qkv_bias = true;
  qwen2.tied = true;
  all.push_back({"qwen2", qwen2});
  model::Shape qwen3 = small_llama();
  qwen3.model_type = "qwen3";
  qwen3.qk_norm = true;
  qwen3.heads = 8;
  qwen3.kv_heads = 1;
  qwen3.head_size = 24;
  all.push_back({"qwen3", qwen3});
  model::Shape mixture = qwen3;
  mixture.model_type = "qwen3_moe";
  mixture.layers = 3;
  mixture.experts = {
      .count = 6, .chosen = 2, .intermediate = 40, .normalized = true, .every = 1, .dense_layers = {1}};
  all.push_back({"mixture", mixture});
  mixture.experts.normalized = false;
  mixture.experts.chosen = 3;
  all.push_back({"mixture_of_all_weights", mixture});
  return all;
}

}  // namespace tutti::serve::cpu
