// The jobs of a cluster as a trace that `tutti sim run` replays: a line for each that ran, when it has ended.
// Lines are added to what the file holds, so that a controller that starts again goes on. They are
// written beside the core, which does not wait for a disk. One thread.
#pragma once

#include <string>

#include "base/files/descriptor.hpp"
#include "base/files/line_queue.hpp"
#include "base/result.hpp"
#include "control/cluster/model.hpp"

namespace tutti::controller {

class Recording {
 public:
  static Result<Recording> open(const std::string& file);
  // Onto what is open already; `name` is for the log.
  static Result<Recording> onto(files::FileDescriptor file, const std::string& name);

  // One that never ran leaves no line.
  void ended(const cluster::Job& job) const;
  // Whether all lines have left within the time.
  bool drain(Duration patience) const { return lines_.drain(patience); }

 private:
  explicit Recording(files::LineQueue lines) : lines_(std::move(lines)) {}

  files::LineQueue lines_;
};

}  // namespace tutti::controller
