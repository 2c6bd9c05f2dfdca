// A process in the place of a shim, called as one and with the words of one, that holds the folder of its
// rank open if there is one; and a process of its rank, both of a session of their own. A rank that pretends
// has the words of its shim.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "node/rank/process.hpp"
#include "node/rank/rank_folder.hpp"

namespace tutti::agent {

class StandIn {
 public:
  // `place` is that of the agent's folder; shims of earlier versions have no such word.
  explicit StandIn(const std::string& rank_folder, const std::string& place = "", bool rank_pretends = false,
                   uid_t user = ::geteuid()) {
    std::string path = testing::TempDir() + "tutti-stand-in-XXXXXX";
    folder_ = mkdtemp(path.data());
    std::filesystem::copy_file("/bin/sh", folder_ + "/tutti");
    std::ofstream(folder_ + "/shim") << "[ ! -d $1 ] || exec 9<$1; mkfifo never; "
                                     << (rank_pretends ? "read nothing <never >&-" : "sleep 1000 >&-")
                                     << " & echo $!; wait; read nothing <never";
    if (user != ::geteuid() && ::chown(folder_.c_str(), user, user) != 0) return;
    std::array<int, 2> told{};
    if (::pipe(told.data()) != 0) return;
    shim_ = ::fork();
    if (shim_ == 0) {
      ::setsid();
      if (user != ::geteuid() && ::setresuid(user, user, user) != 0) ::_exit(1);
      if (::chdir(folder_.c_str()) != 0 || ::dup2(told[1], STDOUT_FILENO) < 0) ::_exit(1);
      ::execl("./tutti", "./tutti", "shim", rank_folder.c_str(), place.empty() ? nullptr : place.c_str(),
              nullptr);
      ::_exit(1);
    }
    ::close(told[1]);
    std::string pid;
    for (char letter = 0; ::read(told[0], &letter, 1) == 1 && letter != '\n';) pid += letter;
    ::close(told[0]);
    rank_ = std::atoi(pid.c_str());
    EXPECT_GT(rank_, 0);
    // Until it is a program of its own it has the words of the shim.
    const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!rank_pretends && rank::process_name(rank_) != "sleep" &&
           std::chrono::steady_clock::now() < give_up_at)
      std::this_thread::yield();
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  ~StandIn() {
    kill_shim();
    if (rank_lives()) ::kill(rank_, SIGKILL);
    std::filesystem::remove_all(folder_);
  }

  rank::ShimProcess shim() const { return described(shim_); }
  // As it would name itself in the note of its shim.
  rank::ShimProcess rank() const { return described(rank_); }
  void kill_shim() {
    if (shim_ <= 0) return;
    ::kill(shim_, SIGKILL);
    ::waitpid(shim_, nullptr, 0);
    shim_ = -1;
  }
  bool rank_lives() const {
    const auto process = rank_ > 0 ? rank::read_process(rank_) : std::nullopt;
    return process && !process->ended();
  }

 private:
  static rank::ShimProcess described(pid_t pid) {
    const auto process = rank::read_process(pid);
    return {.pid = pid, .start_time = process ? process->start_time : 0};
  }

  std::string folder_;
  pid_t shim_ = -1;
  pid_t rank_ = -1;
};

}  // namespace tutti::agent
