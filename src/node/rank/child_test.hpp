// A test of what a process is that goes its own way: in a child, which ends with the answer.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace tutti::rank {

inline bool holds_in_a_child(const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tutti::rank
