// Processes of this host, as /proc shows them. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace tutti::comm {

struct ProcessSample {
  char state = 0;  // R, S, D, T, Z …; 0: there is no such process
  std::uint64_t cpu_ticks = 0;
};
ProcessSample sample_process(pid_t pid);

// Processes with the same text can open one another's memory and reach one another's loopback.
std::string host_identity();

// TUTTI_NODE, or the host's name.
std::string node_name();

}  // namespace tutti::comm
