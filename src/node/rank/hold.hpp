// The cgroup that holds all processes of one rank, whoever they become and whoever their parent is: a change
// of user, a session of their own or a stopped shim do not let them out. Made by the shim, ended by the shim
// or by the agent. Where no cgroup can be had, it holds nothing and says so. Any thread.
#pragma once

#include <sys/types.h>

#include <string>

namespace tutti::rank {

class Hold {
 public:
  // Names the cgroup and touches nothing. What is no name of a folder holds nothing.
  explicit Hold(const std::string& name, const std::string& root = "/sys/fs/cgroup");

  // A cgroup can be had here: by the look of the machine, not by trying.
  bool possible() const { return !folder_.empty(); }
  // Of version 2.
  bool is_unified() const { return unified_; }
  // There is one of this name.
  bool exists() const;
  bool make() const;
  struct Forked {
    pid_t pid = -1;     // as fork() returns it
    bool held = false;  // in the child: it is under the hold
  };
  // Forks, from a process of one thread, a child that is under the hold from its first moment on.
  Forked fork_under() const;
  // Puts the calling process, and so all it starts, under the hold. False without one. Where the machine has
  // been quiet it takes some 10 ms, in which nobody can fork.
  bool enter() const;
  // Kills all that it holds; they are gone when empty() says so.
  void kill() const;
  bool empty() const;
  // With the cgroups that its rank has made in it. False while it holds somebody.
  bool remove() const;
  // Where it is; "" without one.
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  bool unified_ = false;  // version 2, which kills by itself; else the freezer of version 1
};

}  // namespace tutti::rank
