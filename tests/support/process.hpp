// Runs programs as a test needs them: to their end, bounded in time, or beside the test until it ends them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/time.hpp"

namespace tutti::support {

// The `tutti` of this build.
extern const std::string tutti_program;

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

// A program that runs beside the test; it is killed with its object at the latest.
class Process {
 public:
  // Its standard output is appended to the file `output`, its errors to `output`.err.
  Process(const std::vector<std::string>& words, const std::string& output,
          const std::map<std::string, std::string>& env = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Waits for its end: the exit code, 128 + signal if a signal ended it.
  int wait();

 private:
  pid_t pid_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

// Looks every 20 ms until the condition holds. False when the time is over.
bool eventually(const std::function<bool()>& condition, Duration patience = 60s);

// The processes whose command line or environment names the text, without this one.
std::vector<pid_t> processes_naming(const std::string& text);
// The words of a process's environment, K=V; nothing if it has ended.
std::vector<std::string> environment_of(pid_t pid);

bool has(const std::string& text, const std::string& part);

// A script that goes on when the file is there, and then does the rest.
std::string until(const std::string& file, const std::string& then = "true");

std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);
std::vector<std::string> lines_of(const std::string& text);

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
