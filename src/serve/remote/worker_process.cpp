#include "serve/remote/worker_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "serve/remote/ending.hpp"
#include "serve/remote/remote.hpp"

extern char** environ;

namespace tutti::serve::remote {
namespace {

// glibc's own of these names cannot be called from C++ before 2.37.
int open_process(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
void signal_process(int descriptor, int signal) {
  syscall(SYS_pidfd_send_signal, descriptor, signal, nullptr, 0);
}

struct Ends {
  std::vector<Channel> own;
  std::vector<files::FileDescriptor> theirs;
};

Result<Ends> make_ends(int lanes) {
  Ends ends;
  for (int nth = 0; nth < lanes; ++nth) {
    int pair[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
      return failed_errno("a socket to the worker", errno);
    ends.own.emplace_back(files::FileDescriptor(pair[0]));
    const files::FileDescriptor low(pair[1]);
    // Beyond where they go to in the worker: none is overwritten before it is there.
    files::FileDescriptor high(fcntl(low.get(), F_DUPFD_CLOEXEC, worker_descriptor + lanes));
    if (!high.valid()) return failed_errno("a socket to the worker", errno);
    ends.theirs.push_back(std::move(high));
  }
  return ends;
}

}  // namespace

WorkerProcess::WorkerProcess(pid_t pid, std::vector<Channel> lanes)
    : pid_(pid), lanes_(std::move(lanes)), end_(open_process(pid)) {}

WorkerProcess::~WorkerProcess() {
  lanes_.clear();  // it ends when nobody is there any more
  if (!how_it_ended_.empty()) return;
  ::kill(pid_, SIGTERM);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const std::vector<std::string>& command,
                                                            int lanes) {
  auto ends = make_ends(lanes);
  if (!ends) return std::move(ends).error();
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int nth = 0; nth < lanes; ++nth)
    posix_spawn_file_actions_adddup2(&actions, ends->theirs[static_cast<std::size_t>(nth)].get(),
                                     worker_descriptor + nth);
  // Ctrl-C is for whoever talks with people: he drains first.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int failure = posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0)
    return failed_errno(command.front(), failure)
        .remedy("tutti-worker lies beside tutti; `./dev build` makes both");
  // Only the worker has its ends after this, so that its end is noticed.
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, std::move(ends->own)));
}

void WorkerProcess::kill() const {
  if (end_.valid()) signal_process(end_.get(), SIGKILL);
}

const std::string& WorkerProcess::end() {
  if (!how_it_ended_.empty()) return how_it_ended_;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  how_it_ended_ = how_it_ended(status);
  return how_it_ended_;
}

}  // namespace tutti::serve::remote
