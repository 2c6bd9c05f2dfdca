// Does a GPU compute what the CPU does, and how fast? What `tutti-worker check-serve` and `tutti-worker
// bench-serve` ask.
#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"

namespace tutti::serve {

using Print = std::function<void(const std::string&)>;

// Compares every family of models on the first GPU with the CPU's arithmetic, in f32, bf16 and fp8 (with the
// CPU's of the rounded weights), however its tokens come; what it knows of a text, as embeddings ask for it;
// the answers of many requests at once with those of one at a time; tokens that the GPU draws with the
// reference's. `print` gets a line for each with its largest error; the first that is off ends it.
Result<> check_gpu(const Print& print);
// The same of sequences of several adapters side by side, which engines on GPUs do not offer before it is
// right.
Result<> check_gpu_adapters(const Print& print);

// A model of a folder in which bench/peers/transformers_logits.py has left what it says.
Result<> check_folder(const std::string& folder, const Print& print);

// A Llama shape of 1.1 billion random weights, by part:
//   ""       how long a token takes, and how many come a second
//   ways     the same steps with each feature of them switched off
//   fp8      steps of bf16 and of fp8
//   kernels  some steps, kernel by kernel, for a profiler to look at
Result<> bench_gpu(const std::string& part, const Print& print);

}  // namespace tutti::serve
