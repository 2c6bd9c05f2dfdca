// llama.cpp as a peer: models of random weights in its format, and its own tools that time them. One thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "learn/model/shape.hpp"

namespace tutti::bench {

enum class LlamaType { f32, q8_0 };

// A model of this shape (model_type llama) whose weights are random.
Result<> write_gguf(const std::string& path, const model::Shape& shape, LlamaType type);

// Whether the tools are in the folder; else what to do.
Result<> find_llama_tools(const std::string& folder);

struct LlamaLoad {
  std::string tools;  // the folder
  std::string model;
  int threads = 0;
  int prompt = 0;     // tokens
  int generated = 0;  // tokens
  int streams = 0;
};
// In tokens a second: of the prompt, of one stream behind it.
Result<double> llama_prefill(const LlamaLoad& load);
Result<double> llama_one_stream(const LlamaLoad& load);
// Of all streams together, after their prompts.
Result<double> llama_streams(const LlamaLoad& load);

}  // namespace tutti::bench
