// A job as a row of a trace, the way read_trace() takes it.
#pragma once

#include <string>

namespace tutti::trace {

struct Row {
  std::string id;
  double submit_s = 0;
  double gpus = 0;
  double duration_s = 0;
  std::string gpu_type;
  std::string user;
  std::string status;
  std::string partition;
};

// The names of the columns, and the row, each as a line.
std::string header_line();
std::string line_of(const Row& row);

}  // namespace tutti::trace
