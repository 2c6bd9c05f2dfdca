// Ranks for tests: as threads of this process, or as processes of their own.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/socket.hpp"

namespace tutti::comm {

// A listener of the system's choice for the hub, and the options of each rank around it.
class Meeting {
 public:
  explicit Meeting(int size, Transport transport = Transport::automatic) {
    auto listener = listen_on(*Endpoint::of("127.0.0.1", 0));
    options_.size = size;
    options_.transport = transport;
    options_.connect_timeout = std::chrono::seconds(60);
    options_.deadline = std::chrono::seconds(60);
    options_.master_port = *port_of(*listener);
    listener_ = std::move(*listener);
  }

  Options& options() { return options_; }

  Options of(int rank) {
    Options options = options_;
    options.rank = rank;
    if (rank == 0) {
      options.hub_listener = fcntl_dup(listener_.get());
      listener_ = Socket();
    }
    return options;
  }

 private:
  static int fcntl_dup(int descriptor) { return dup(descriptor); }
  Options options_;
  Socket listener_;
};

using RankBody = std::function<void(Communicator&)>;

inline void run_threads(Meeting& meeting, const RankBody& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < meeting.options().size; ++rank) {
    threads.emplace_back([options = meeting.of(rank), &body] {
      auto world = Communicator::connect(options);
      ASSERT_TRUE(world.ok()) << world.error().text();
      body(*world);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void run_threads(int size, Transport transport, const RankBody& body) {
  Meeting meeting(size, transport);
  run_threads(meeting, body);
}

// Ranks as processes; a body that returns makes exit status 0, a failed expectation 1.
class RankProcesses {
 public:
  RankProcesses(Meeting& meeting, const RankBody& body) {
    for (int rank = 0; rank < meeting.options().size; ++rank) {
      const Options options = meeting.of(rank);
      const pid_t pid = fork();
      if (pid == 0) {
        {
          auto world = Communicator::connect(options);
          EXPECT_TRUE(world.ok()) << world.error().text();
          if (world.ok()) body(*world);
        }
        _exit(testing::Test::HasFailure() ? 1 : 0);
      }
      if (options.hub_listener >= 0) close(options.hub_listener);
      pids_.push_back(pid);
    }
  }
  ~RankProcesses() {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill_and_reap(pid);
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  // The status as waitpid gives it.
  int wait(int rank) {
    int status = -1;
    waitpid(pid(rank), &status, 0);
    pids_[static_cast<std::size_t>(rank)] = -1;
    return status;
  }

 private:
  static void kill_and_reap(pid_t pid) {
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::vector<pid_t> pids_;
};

}  // namespace tutti::comm
