// A process that computes for this one, and the sockets to it: one a lane, the first at worker_descriptor. It
// has nothing else of this process, and ends with its object. kill() from any thread; each lane is for one
// thread at a time, and the rest is for one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/result.hpp"
#include "serve/remote/channel.hpp"

namespace tutti::serve::remote {

class WorkerProcess {
 public:
  struct Wanted {
    std::vector<std::string> command;
    int lanes = 1;
    int listener = -1;  // that it finds behind its lanes; stays the caller's
  };
  static Result<std::unique_ptr<WorkerProcess>> start(const Wanted& wanted);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  const Channel& lane(int nth) const { return lanes_[static_cast<std::size_t>(nth)]; }
  // Readable when it has ended.
  int end_descriptor() const { return end_.get(); }

  // It ends now; who waits for its words hears that it has gone.
  void kill() const;
  // Kills it, if it has not ended by itself: it has nothing that is worth keeping. "signal 9", "exit code 1".
  const std::string& end();
  bool has_ended() const { return !how_it_ended_.empty(); }

 private:
  WorkerProcess(pid_t pid, std::vector<Channel> lanes);

  const pid_t pid_;
  std::vector<Channel> lanes_;
  files::FileDescriptor end_;  // of the process, not its number: that may be another's by then
  std::string how_it_ended_;   // empty: it has not been waited for
};

}  // namespace tutti::serve::remote
