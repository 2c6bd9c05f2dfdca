// Processes as /proc shows them: who is alive, who descends from whom. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"

namespace tutti::rank {

// What the kernel calls the processes that look after a rank, whatever their file is called. The writer of a
// copy has the words of its shim, and is none.
constexpr std::string_view shim_name = "tutti-shim";
constexpr std::string_view copy_writer_name = "tutti-copy";
// Of a shim whose rank has ended, before the exit code (told_end.hpp): it begins as the names of all shims do
// (leftovers.cpp), and the kernel keeps 15 characters.
constexpr std::string_view ended_shim_name = "tutti-end-";
// Of this process, from now on.
void set_process_name(std::string_view name);
// "" of a process that has gone.
std::string process_name(pid_t pid);

struct ProcessStatus {
  char state = '?';  // 'R', 'S', …; 'Z' for one whose first thread has ended, and who waits to be reaped
  pid_t parent = 0;
  pid_t session = 0;
  std::uint64_t start_time =
      0;  // in ticks since the machine started: tells a process from a later one of its pid
  std::int64_t threads = 1;  // with the first, which stays until the last has ended
  // What its parent gets when it ends. Whoever is left to another parent, or runs a program of its own, has
  // SIGCHLD.
  int exit_signal = 0;

  // One that its first thread has left runs on in the others, holds what it held, and can be signalled.
  bool ended() const { return state == 'X' || (state == 'Z' && threads <= 1); }
};

// Nothing if there is no such process.
std::optional<ProcessStatus> read_process(pid_t pid);
// As whom it acts, also of one that hides; nothing if there is no such process.
std::optional<uid_t> user_of(pid_t pid);

// One that was seen, and no later one of its pid.
struct SeenProcess {
  pid_t pid = 0;
  std::uint64_t start_time = 0;

  friend bool operator==(const SeenProcess&, const SeenProcess&) = default;
};
// Signals that one. False if it could not: it has gone, and somebody else has its pid perhaps.
bool signal_process(const SeenProcess& process, int signal);

// How long ago it was, on a clock that nobody sets. Where the machine slept before that it is off by as long:
// by the same for each time it is asked for, and less than nothing perhaps.
Duration since_start(std::uint64_t start_time);

std::vector<pid_t> all_processes();

// Children, their children and so on, parents first, without those that have ended. Who is started meanwhile,
// or goes to another parent because his own ends, may be missing: that there is none says family_of() alone.
std::vector<pid_t> descendants_of(pid_t ancestor);

// The same from the parents of all processes of the machine, for kernels that do not list children.
std::vector<pid_t> descendants_by_scan(pid_t ancestor);

// The descendants of a process that inherits orphans (PR_SET_CHILD_SUBREAPER), by two looks.
struct Family {
  std::vector<SeenProcess> running;  // as descendants_of()
  // Both looks have met the same, those that have ended too. If none is running then, none was: whoever runs
  // has a parent that runs, and so on up to a child of the ancestor, and all its children had ended before
  // they were listed. Else somebody may have passed from a parent that ended to one whose children were
  // listed before: look again.
  bool settled = false;
};
// Adds the children of a process.
using AppendChildren = std::function<void(pid_t parent, std::vector<pid_t>& children)>;
Family family_of(pid_t ancestor);
Family family_of(pid_t ancestor, const AppendChildren& append_children_of);
// As the kernel lists them, of each thread.
void append_children(pid_t parent, std::vector<pid_t>& children);

// Where memory is short the kernel ends the process that is worth most to it, and this number counts: ranks
// go before whoever looks after them. Children inherit it.
constexpr int spared_oom_score = -500;
constexpr int rank_oom_score = 500;
// Of this process. Everybody may raise it, not everybody lower it; where that is refused it stays as it was.
void raise_oom_score(int score);
void lower_oom_score(int score);

// The running processes of a session, without the one that leads it.
std::vector<SeenProcess> session_of(pid_t leader);

}  // namespace tutti::rank
