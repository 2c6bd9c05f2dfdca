// The limits of one rank on memory, CPUs and processes: a cgroup where this process may make one (version 2,
// or the controllers of version 1), and a limit on each process's data where it may not. Used by the shim,
// single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace tutti::rank {

// Of processes and threads, which are the same to the kernel: what one rank may have, and all ranks of the
// host together. 0: no limit.
struct ProcessLimits {
  std::int64_t rank = 0;
  std::int64_t ranks = 0;
};
// Far more than a program needs that uses all CPUs of a large host, and not so much that one rank could take
// them all from the others, or all ranks from the host.
ProcessLimits process_limits(std::int64_t of_host);
// How many the host has; 0: not known.
std::int64_t host_processes(const std::string& root = "/sys/fs/cgroup", const std::string& proc = "/proc");

// How many processes the kernel has killed on this machine for want of memory, since it started; -1: not
// known.
std::int64_t memory_kills(const std::string& proc = "/proc");

struct LimitRequest {
  std::string name;       // of the cgroup
  std::int32_t cpus = 0;  // 0: no limit
  Bytes memory;           // 0: no limit
  ProcessLimits processes = {};
};

class RankLimits {
 public:
  // Makes the cgroups below `root`; asks for none when nothing is limited. Where there is one, ranks share
  // the CPUs as ranks, however many processes each has.
  explicit RankLimits(LimitRequest request, std::string root = "/sys/fs/cgroup");
  ~RankLimits();
  RankLimits(const RankLimits&) = delete;
  RankLimits& operator=(const RankLimits&) = delete;

  // Puts the calling process, and so all it starts, under the limits. `entered`: a cgroup that it is in
  // already.
  void enter(const std::string& entered = "") const;

  // Has the kernel killed a process of the rank because of the limit? Only a cgroup can tell.
  bool memory_limit_reached() const;

  // Could it not start a process or a thread because of the limit? Only a cgroup can tell.
  bool process_limit_reached() const;

  bool memory_has_cgroup() const { return !memory_events_.empty(); }
  bool processes_have_cgroup() const { return !process_events_.empty(); }
  bool cpus_have_cgroup() const { return cpus_have_cgroup_; }

 private:
  void make_unified();
  void make_memory_controller();
  void make_cpu_controller();
  void make_process_controller();
  void limit_processes(const std::string& parent, const std::string& cgroup);

  LimitRequest request_;
  std::string root_;
  std::vector<std::string> cgroups_;  // folders that the rank is put into, and that are removed at the end
  std::string memory_events_;         // the file that counts kills, "" without a cgroup for memory
  std::string process_events_;        // the same for processes
  bool cpus_have_cgroup_ = false;
};

}  // namespace tutti::rank
