#include "node/rank/launch.hpp"

#include "base/files/descriptor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "node/rank/secrets.hpp"

namespace tutti::rank {
namespace {

// glibc 2.36 declares the functions for C only.
int pidfd_open(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

int pidfd_send_signal(int process, int signal) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0));
}

class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    // Blocked from its first moment on, so that a request to end waits until the shim can follow it.
    sigset_t requests;
    sigemptyset(&requests);
    sigaddset(&requests, SIGTERM);
    sigaddset(&requests, SIGUSR1);
    posix_spawnattr_setsigmask(&attributes_, &requests);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

class SpawnFiles {
 public:
  explicit SpawnFiles(int secrets) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (secrets >= 0) posix_spawn_file_actions_adddup2(&actions_, secrets, secrets_descriptor);
    posix_spawn_file_actions_addclosefrom_np(&actions_,
                                             secrets >= 0 ? secrets_descriptor + 1 : STDERR_FILENO + 1);
  }
  ~SpawnFiles() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnFiles(const SpawnFiles&) = delete;
  SpawnFiles& operator=(const SpawnFiles&) = delete;

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

// For people who look at processes: where it lay when it was started.
std::string called(const std::string& tutti_program) {
  if (tutti_program != own_program) return tutti_program;
  std::error_code unknown;
  std::string path = std::filesystem::read_symlink(own_program, unknown).string();
  constexpr std::string_view replaced = " (deleted)";
  if (path.ends_with(replaced)) path.resize(path.size() - replaced.size());
  return unknown ? tutti_program : path;
}

}  // namespace

Result<pid_t> start_shim(const std::string& tutti_program, const std::string& folder, int secrets) {
  const SpawnAttributes attributes;
  const SpawnFiles files(secrets);
  std::string program = called(tutti_program);
  std::string command = "shim";
  std::string argument = folder;
  // A rank can move its own folder anywhere: which one is its agent's, the words of its shim tell.
  std::string agents = folder_place(std::filesystem::path(folder).parent_path().parent_path().string());
  char* arguments[] = {program.data(), command.data(), argument.data(), agents.data(), nullptr};
  pid_t pid = 0;
  // The new process has the program of this one until it has its own, and so own_program is this one's.
  const int error =
      posix_spawn(&pid, tutti_program.c_str(), files.get(), attributes.get(), arguments, environ);
  if (error != 0) return failed_errno("cannot start " + tutti_program, error);
  return pid;
}

Result<files::FileDescriptor> open_pidfd(pid_t pid) {
  files::FileDescriptor process(pidfd_open(pid));
  if (!process.valid()) return failed_errno("cannot watch process " + std::to_string(pid), errno);
  return process;
}

bool has_ended(const files::FileDescriptor& process) {
  pollfd asked{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&asked, 1, 0) == 1 && (asked.revents & POLLIN) != 0;
}

Result<> end_shim(const ShimProcess& shim, bool at_once) {
  // The descriptor holds on to one process, so what is_alive says after it was opened stays true of it.
  const files::FileDescriptor process(pidfd_open(shim.pid));
  if (!process.valid() && errno == ESRCH) return {};
  if (!process.valid()) return failed_errno("cannot reach process " + std::to_string(shim.pid), errno);
  if (!is_alive(shim)) return {};
  if (pidfd_send_signal(process.get(), at_once ? SIGUSR1 : SIGTERM) == 0 || errno == ESRCH) {
    // A rank may have stopped it, and it would not notice.
    pidfd_send_signal(process.get(), SIGCONT);
    return {};
  }
  return failed_errno("cannot signal process " + std::to_string(shim.pid), errno);
}

}  // namespace tutti::rank
