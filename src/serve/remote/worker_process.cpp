#include "serve/remote/worker_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "serve/remote/remote.hpp"

extern char** environ;

namespace tutti::serve::remote {
namespace {

// A message waits for a worker that computes no longer than this: one that does not even read hangs.
constexpr timeval send_time_max{.tv_sec = 60, .tv_usec = 0};

// A process that was killed and holds a GPU may take a while to end; one that the driver does not let go
// never does, and nobody waits for it.
constexpr int end_time_max_ms = 30'000;

// glibc's own of these names cannot be called from C++ before 2.37.
int open_process(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
void signal_process(int descriptor, int signal) {
  syscall(SYS_pidfd_send_signal, descriptor, signal, nullptr, 0);
}

bool ends_soon(int descriptor) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, end_time_max_ms);
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

std::string told(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

struct Ends {
  std::vector<Channel> own;
  std::vector<files::FileDescriptor> theirs;  // from worker_descriptor on
};

// Beyond where they go to in the worker: none is overwritten before it is there.
Result<> add_theirs(Ends& ends, int descriptor, const WorkerProcess::Wanted& wanted) {
  files::FileDescriptor high(fcntl(descriptor, F_DUPFD_CLOEXEC, worker_descriptor + wanted.lanes + 1));
  if (!high.valid()) return failed_errno("a descriptor for the worker", errno);
  ends.theirs.push_back(std::move(high));
  return {};
}

Result<Ends> make_ends(const WorkerProcess::Wanted& wanted) {
  Ends ends;
  for (int nth = 0; nth < wanted.lanes; ++nth) {
    int pair[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
      return failed_errno("a socket to the worker", errno);
    files::FileDescriptor own(pair[0]);
    const files::FileDescriptor low(pair[1]);
    if (setsockopt(own.get(), SOL_SOCKET, SO_SNDTIMEO, &send_time_max, sizeof send_time_max) != 0)
      return failed_errno("a socket to the worker", errno);
    ends.own.emplace_back(std::move(own));
    if (auto added = add_theirs(ends, low.get(), wanted); !added) return std::move(added).error();
  }
  if (wanted.listener >= 0) {
    if (auto added = add_theirs(ends, wanted.listener, wanted); !added) return std::move(added).error();
  }
  return ends;
}

}  // namespace

WorkerProcess::WorkerProcess(pid_t pid, std::vector<Channel> lanes)
    : pid_(pid), lanes_(std::move(lanes)), end_(open_process(pid)) {}

WorkerProcess::~WorkerProcess() { end(); }

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const Wanted& wanted) {
  auto ends = make_ends(wanted);
  if (!ends) return std::move(ends).error();
  std::vector<char*> words;
  words.reserve(wanted.command.size() + 1);
  for (const std::string& word : wanted.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  int next = worker_descriptor;
  for (const files::FileDescriptor& each : ends->theirs)
    posix_spawn_file_actions_adddup2(&actions, each.get(), next++);
  // A port that the engine listens at would stay taken as long as the worker lives.
  posix_spawn_file_actions_addclosefrom_np(&actions, next);
  // Ctrl-C is for whoever talks with people: he drains first.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int failure = posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0)
    return failed_errno(wanted.command.front(), failure)
        .remedy("tutti-worker lies beside tutti; `./dev build` makes both");
  // Only the worker has its ends after this, so that its end is noticed.
  std::unique_ptr<WorkerProcess> made(new WorkerProcess(pid, std::move(ends->own)));
  if (!made->end_.valid()) return failed("this system does not tell when a process ends (pidfd)");
  return made;
}

void WorkerProcess::kill() const { signal_process(end_.get(), SIGKILL); }

const std::string& WorkerProcess::end() {
  if (has_ended()) return how_it_ended_;
  ::kill(pid_, SIGKILL);
  if (end_.valid() && !ends_soon(end_.get())) {
    how_it_ended_ = "not at all, though it was killed";
    return how_it_ended_;
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  how_it_ended_ = told(status);
  return how_it_ended_;
}

}  // namespace tutti::serve::remote
