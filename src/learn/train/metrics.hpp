// What a run tells of itself: a line of JSON for each step, in a file that a resumed run goes on with. One
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"

namespace tutti::train {

struct StepMetrics {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;
  std::int64_t tokens = 0;  // seen so far
  double tokens_per_s = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double step_ms = 0;
  std::uint64_t data = 0;  // a sum over the samples of the step: which they were, in any order

  std::string json() const;
};

class MetricsFile {
 public:
  // Lines of steps after `step` are those of an attempt that was not saved, and are dropped.
  static Result<MetricsFile> open(const std::string& path, std::int64_t step);

  Result<> append(const StepMetrics& metrics);

 private:
  MetricsFile(files::FileDescriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  files::FileDescriptor file_;
  std::string path_;
};

}  // namespace tutti::train
