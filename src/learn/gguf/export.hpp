// A checkpoint as one GGUF file, which llama.cpp and its relatives load. Called by one thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "learn/checkpoint/export.hpp"
#include "learn/checkpoint/read.hpp"

namespace tutti::gguf {

// The file is not there yet. It appears when it is complete; memory does not grow with the model.
Result<> export_gguf(const checkpoint::Checkpoint& checkpoint, const std::string& path,
                     const checkpoint::ExportOptions& options);

}  // namespace tutti::gguf
