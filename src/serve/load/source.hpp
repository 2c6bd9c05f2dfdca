// A model as it lies on the disk: a run of tutti (its newest checkpoint, and the tokenizer of its data) or a
// folder of Hugging Face. What its files say is checked; nothing is reserved yet. Immutable, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "learn/model/shape.hpp"
#include "learn/safetensors/types.hpp"
#include "learn/tokenizer/settings.hpp"
#include "learn/tokenizer/tokenizer.hpp"
#include "serve/step/step.hpp"

namespace tutti::serve {

struct Source {
  std::string path;    // of a run: that of the checkpoint itself, so that whoever opens it next has the same
  std::string name;    // the last part of its path
  std::string folder;  // of safetensors, for those who read them on their own; "": a run
  std::string fingerprint;  // of its weights and its shape, from before they were looked at (fingerprint.hpp)
  std::string detail;       // what a person is told: "step 400 of a run", "a folder of Hugging Face"
  model::Shape shape;
  bool is_bf16 = false;  // what its weights lie in; f32 else, which holds all other types
  tokenizer::Tokenizer tokenizer;
  tokenizer::TokenSettings settings;
  // How its texts become vectors, or why they do not.
  Result<Pooling> pooling = Pooling::last;
  // Rows of a tensor as floats, from several threads at once.
  std::function<Result<>(const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                         std::span<float> floats)>
      read;
  // The same rows as the files have them, where that is in this type; else false. Null: always through
  // floats.
  std::function<Result<bool>(const std::string& tensor, std::int64_t first_row, std::int64_t rows,
                             safetensors::Type type, std::span<std::byte> bytes)>
      read_stored = nullptr;
};

Result<Source> open_source(const std::string& path);

}  // namespace tutti::serve
