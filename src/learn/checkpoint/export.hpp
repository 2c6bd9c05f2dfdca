// A checkpoint as a folder that Hugging Face's libraries load: config.json and model.safetensors, or several
// such files and an index. Called by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "learn/checkpoint/read.hpp"
#include "learn/safetensors/types.hpp"

namespace tutti::checkpoint {

struct ExportOptions {
  safetensors::Type type = safetensors::Type::f32;  // or f16 or bf16
  std::string tokenizer;                            // the text of a tokenizer.json to put beside it
  std::string chat_template;                        // likewise of a chat_template.jinja
  std::uint64_t file_bytes_max = 5'000'000'000;     // of tensors, from where on there are several files
  std::int64_t floats_at_a_time = std::int64_t{16} << 20;  // of the model in memory: 64 MiB
  // Bytes of the model that are done, and all of them. False leaves off, and nothing of it stays.
  std::function<bool(std::uint64_t, std::uint64_t)> progress = [](std::uint64_t, std::uint64_t) {
    return true;
  };
};

// `folder` is not there yet, or empty. It appears when it is complete; memory does not grow with the model.
Result<> export_hf(const Checkpoint& checkpoint, const std::string& folder, const ExportOptions& options);

}  // namespace tutti::checkpoint
