// `tutti-worker train FOLDER [BYTES [FILE]]`, as a rank of a job: how much memory it has, and the submission
// to train, which `tutti train` wrote.
#pragma once

#include <span>
#include <string>

#include "base/result.hpp"

namespace tutti::worker {

// The exit code. A rank that was asked to stop ends by that signal, after its checkpoint.
Result<int> train(std::span<const std::string> words);

}  // namespace tutti::worker
