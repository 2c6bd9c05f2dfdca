// The small models of serve/cpu, and larger ones whose heads the fast kernels take.
#pragma once

#include "serve/cpu/families_test.hpp"
#include "serve/cpu/reference_test.hpp"

namespace tutti::serve {

inline std::vector<cpu::Family> checked_families() {
  std::vector<cpu::Family> all = cpu::small_families();
  model::Shape llama = cpu::small_llama();
  llama.vocabulary = 517;
  llama.hidden = 256;
  llama.heads = 16;
  llama.head_size = 64;
  llama.intermediate = 384;
  llama.context = 1024;
  all.push_back({"llama of 64", llama});
  model::Shape qwen3 = llama;
  qwen3.model_type = "qwen3";
  qwen3.qk_norm = true;
  qwen3.heads = 8;
  qwen3.head_size = 128;
  all.push_back({"qwen3 of 128", qwen3});
  model::Shape mistral = llama;
  mistral.model_type = "mistral";
  mistral.heads = 7;
  mistral.kv_heads = 1;
  mistral.window = 100;
  mistral.qkv_bias = true;
  all.push_back({"mistral of 64", mistral});
  model::Shape gpt2 = cpu::small_families().front().shape;
  gpt2.hidden = 256;
  gpt2.heads = 4;
  gpt2.kv_heads = 4;
  gpt2.head_size = 64;
  gpt2.intermediate = 1024;
  gpt2.context = 1024;
  all.push_back({"gpt2 of 64", gpt2});
  model::Shape many = llama;
  many.heads = 24;
  many.kv_heads = 1;
  many.head_size = 64;
  all.push_back({"24 heads a key", many});
  return all;
}

}  // namespace tutti::serve
