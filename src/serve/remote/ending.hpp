// How a process of a worker ended, for people.
#pragma once

#include <sys/wait.h>

#include <string>

namespace tutti::serve::remote {

inline std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace tutti::serve::remote
