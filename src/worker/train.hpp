// `tutti-worker train FOLDER [BYTES]`, as a rank of a job, and `tutti-worker generate`.
#pragma once

#include <span>
#include <string>

#include "base/result.hpp"

namespace tutti::worker {

// The exit code. A rank that was asked to stop ends by that signal, after its checkpoint.
Result<int> train(std::span<const std::string> words);

// RUN PROMPT TOKENS TEMPERATURE SEED, as `tutti generate` hands them over.
Result<int> generate(std::span<const std::string> words);

}  // namespace tutti::worker
