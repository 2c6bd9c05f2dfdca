#include "node/agent/rank_start.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::agent {
namespace {

namespace fs = std::filesystem;

// As long as one lives this process opens no more files; those that it starts may, some.
class NoFiles {
 public:
  NoFiles() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    constexpr int for_children = 64;
    int last = 0;
    while (last + 1 < for_children) {
      taken_.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!taken_.back().valid()) break;
      last = taken_.back().get();
    }
    const rlimit none{.rlim_cur = static_cast<rlim_t>(last) + 1, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;
  ~NoFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<files::FileDescriptor> taken_;
};

RankOrder order_in(const std::string& folder) {
  RankOrder order;
  order.tutti_program = folder + "/tutti";
  wire::StartRanks attempt;
  attempt.command = {"true"};
  attempt.ranks.resize(1);
  order.attempt = std::make_shared<const wire::StartRanks>(attempt);
  order.folder = folder + "/ranks/7.0.0";
  order.cgroup = "tutti-start-7.0.0";
  order.notes = std::make_shared<MembershipNotes>(folder, "");
  return order;
}

// Whose start is not known is taken for a stranger: nothing would end it, and it would be told as gone.
TEST(RankStart, AShimThatCannotBeLookedAtForWantOfFilesIsKnownAllTheSame) {
  std::string path = testing::TempDir() + "tutti-start-XXXXXX";
  const std::string folder = mkdtemp(path.data());
  const std::string begun = folder + "/begun";
  const RankOrder order = order_in(folder);
  std::ofstream(order.tutti_program) << "#!/bin/sh\ntouch " << begun << "\nexec sleep 1000\n";
  fs::permissions(order.tutti_program, fs::perms::owner_all);
  std::optional<NoFiles> none;
  std::thread later;
  const auto started = start_rank(order, [&] {
    none.emplace();
    later = std::thread([&] {
      const auto give_up_at = std::chrono::steady_clock::now() + 1min;
      while (::access(begun.c_str(), F_OK) != 0 && std::chrono::steady_clock::now() < give_up_at)
        std::this_thread::yield();
      none.reset();
    });
    return true;
  });
  if (later.joinable()) later.join();
  ASSERT_TRUE(started.ok()) << started.error().text();
  EXPECT_TRUE(rank::is_alive(started->process));
  EXPECT_FALSE(rank::is_gone(started->process));
  ::kill(started->process.pid, SIGKILL);
  EXPECT_EQ(::waitpid(started->process.pid, nullptr, 0), started->process.pid);
  fs::remove_all(folder);
}

TEST(RankStart, AnAgentsFolderThatWasRemovedIsNotMadeAgain) {
  std::string path = testing::TempDir() + "tutti-start-XXXXXX";
  const std::string home = mkdtemp(path.data());
  bool was_asked = false;
  const auto started = start_rank(order_in(home + "/nodes/n1"), [&] {
    was_asked = true;
    return false;
  });
  EXPECT_FALSE(started.ok());
  EXPECT_FALSE(was_asked) << "it would have run";
  EXPECT_TRUE(fs::is_empty(home));
  fs::remove_all(home);
}

}  // namespace
}  // namespace tutti::agent
