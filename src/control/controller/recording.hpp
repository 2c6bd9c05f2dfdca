// The jobs of a cluster as a trace that `tutti sim run` replays: a line for each that ran, when it has ended.
// Lines are added to what the file holds, so that a controller that starts again goes on. One thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "control/cluster/model.hpp"

namespace tutti::controller {

class Recording {
 public:
  static Result<Recording> open(const std::string& file);
  Recording(Recording&& other) noexcept;
  Recording& operator=(Recording&&) = delete;
  ~Recording();

  // One that never ran leaves no line.
  void ended(const cluster::Job& job);

 private:
  Recording(std::string file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}

  bool write(const std::string& text);

  std::string file_;
  int descriptor_ = -1;
  bool failing_ = false;  // said once
};

}  // namespace tutti::controller
