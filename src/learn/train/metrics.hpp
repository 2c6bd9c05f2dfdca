// What a run tells of itself: a line of JSON for each step, in a file that a resumed run goes on with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/files/line_queue.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::train {

struct StepMetrics {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;
  std::int64_t tokens = 0;  // seen so far
  double tokens_per_s = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double step_ms = 0;
  std::uint64_t data = 0;    // a sum over the samples of the step: which they were, in any order
  std::int64_t skipped = 0;  // steps so far that changed nothing, as their gradients were not finite

  std::string json() const;
};

// One thread.
class MetricsFile {
 public:
  // Lines of steps after `step` are those of an attempt that was not saved: they and a last line that was cut
  // off are dropped, all others stay. A file that cannot be read is an error, and stays as it is. Whoever has
  // opened the file before cannot append to it any more.
  static Result<MetricsFile> open(const std::string& path, std::int64_t step);

  // A whole line, or none of it.
  Result<> append(const std::string& line);
  // As the last line of a step that stayed has it.
  std::int64_t skipped() const { return skipped_; }

 private:
  MetricsFile(files::FileDescriptor file, std::string path, std::int64_t skipped)
      : file_(std::move(file)), path_(std::move(path)), skipped_(skipped) {}
  files::FileDescriptor file_;
  std::string path_;
  std::int64_t skipped_ = 0;
};

// A thread writes for it: a disk that does not answer holds up no step, for which all other ranks would wait,
// nor the end. Used by the training thread.
class MetricsWriter {
 public:
  // Tens of thousands of lines.
  static constexpr std::size_t waiting_bytes_max = std::size_t{4} << 20;

  // `write` has what it needs for itself: it may be stuck in a line for longer than the writer lives.
  using Write = std::function<Result<>(const std::string& line)>;
  static Result<MetricsWriter> start(Write write);

  // Never waits: a line beyond what may wait is left out.
  void append(const StepMetrics& metrics);
  // Until nothing waits any more, or for so long; whether nothing does.
  bool flush(Duration patience) const { return lines_.drain(patience); }
  // Why the first line is missing that is, once.
  std::optional<Error> take_problem();

 private:
  // Of both threads.
  struct Problem {
    void note(Error error);

    std::mutex mutex;
    bool noted = false;
    std::optional<Error> first;
  };

  MetricsWriter(std::shared_ptr<Problem> problem, files::LineQueue lines)
      : problem_(std::move(problem)), lines_(std::move(lines)) {}

  std::shared_ptr<Problem> problem_;
  files::LineQueue lines_;
};

}  // namespace tutti::train
