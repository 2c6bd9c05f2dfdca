// What a run tells of itself: a line of JSON for each step, in a file that a resumed run goes on with.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/files/descriptor.hpp"
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

  Result<> append(const StepMetrics& metrics);
  // As the last line of a step that stayed has it.
  std::int64_t skipped() const { return skipped_; }

 private:
  MetricsFile(files::FileDescriptor file, std::string path, std::int64_t skipped)
      : file_(std::move(file)), path_(std::move(path)), skipped_(skipped) {}
  files::FileDescriptor file_;
  std::string path_;
  std::int64_t skipped_ = 0;
};

// Has a thread of its own that writes: a disk that does not answer holds up no step, for which all other
// ranks would wait. Used by the training thread.
class MetricsWriter {
 public:
  static constexpr std::size_t lines_waiting_max = 10'000;

  explicit MetricsWriter(std::function<Result<>(const StepMetrics&)> write);
  // Waits until all is written.
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // Never waits: a line beyond those that may wait is left out.
  void append(const StepMetrics& metrics);
  // Until all is written, or for so long; whether it is.
  bool flush(Duration patience);
  // Why the first line is missing that is, once.
  std::optional<Error> take_problem();

 private:
  void work();
  void note(Error problem);  // the mutex is held

  std::function<Result<>(const StepMetrics&)> write_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepMetrics> waiting_;  // the first of them is being written
  bool ending_ = false;
  bool noted_ = false;
  std::optional<Error> problem_;
  std::thread thread_;
};

}  // namespace tutti::train
