// Somebody else on the node who would be taken for a shim.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

#include "support/cluster.hpp"

namespace tutti::support {

// A process with the name and the words of a shim, and a folder of its own that looks as one of an agent's
// that was moved or removed.
class Pretender {
 public:
  Pretender(uid_t user, const std::string& place, const std::string& rank_folder) {
    std::filesystem::create_directories(place + "/x/ranks/9.0.0");
    std::filesystem::copy_file("/bin/sh", place + "/tutti");
    write_text(place + "/shim", "exec 9<x/ranks/9.0.0; echo; read line <wait");
    if (::mkfifo((place + "/wait").c_str(), 0600) != 0) return;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place))
      if (::chown(entry.path().c_str(), user, user) != 0) return;
    std::array<int, 2> told{};
    if (::chown(place.c_str(), user, user) != 0 || ::pipe2(told.data(), O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      if (::chdir(place.c_str()) != 0 || ::dup2(told[1], STDOUT_FILENO) < 0) ::_exit(1);
      if (::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0) ::_exit(1);
      ::execl("./tutti", "./tutti", "shim", rank_folder.c_str(), nullptr);
      ::_exit(1);
    }
    ::close(told[1]);
    char letter = 0;
    began_ = ::read(told[0], &letter, 1) == 1;
    ::close(told[0]);
  }
  Pretender(const Pretender&) = delete;
  Pretender& operator=(const Pretender&) = delete;
  ~Pretender() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool began() const { return began_; }
  bool lives() const { return pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = 0;
  bool began_ = false;
};

}  // namespace tutti::support
