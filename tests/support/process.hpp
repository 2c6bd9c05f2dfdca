// Runs a program to its end, as a test needs it: bounded in time, its output kept.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/time.hpp"

namespace tutti::support {

struct Finished {
  int exit_code = -1;  // 128 + signal if a signal ended it
  bool timed_out = false;
  std::string out;
  std::string err;
};

struct RunOptions {
  std::map<std::string, std::string> env;  // in place of the variables of the same name
  std::string stdout_to;                   // a file instead of Finished::out
  Duration timeout = 120s;                 // then the program's process group is killed
};

// words[0] is a path or a name to be looked up in PATH.
Finished run(const std::vector<std::string>& words, const RunOptions& options = {});

// A folder that is removed with all it holds.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tutti::support
