#include "comm/hosts_test.hpp"

#include <netinet/in.h>

#include <algorithm>

#include "comm/ranks_test.hpp"
#include "comm/reference_test.hpp"

namespace tutti::comm {
namespace {

// Ranks as processes, rank r on host `host_of[r]`; the hub is on the host of rank 0.
class Gang {
 public:
  Gang(const Hosts& hosts, const std::vector<int>& host_of, Duration deadline, const RankBody& body) {
    for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        Options options{.rank = static_cast<int>(rank),
                        .size = static_cast<int>(host_of.size()),
                        .master_address = Hosts::address(host_of[0]),
                        .master_port = 29400,  // the namespace is the test's own, and so are its ports
                        .node = "h" + std::to_string(host_of[rank]),
                        .connect_timeout = std::chrono::seconds(60),
                        .deadline = deadline};
        EXPECT_TRUE(hosts.enter(host_of[rank]));
        {
          auto world = Communicator::connect(options);
          EXPECT_TRUE(world.ok()) << world.error().text();
          if (world.ok()) body(*world);
        }
        _exit(testing::Test::HasFailure() ? 1 : 0);
      }
      pids_.push_back(pid);
    }
  }
  ~Gang() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  int wait(std::size_t rank) {
    int status = -1;
    waitpid(pids_[rank], &status, 0);
    return status;
  }
  pid_t pid(std::size_t rank) const { return pids_[rank]; }

 private:
  std::vector<pid_t> pids_;
};

struct Placement {
  const char* name;
  std::vector<int> host_of;
};

class AcrossHosts : public testing::TestWithParam<Placement> {};

TEST_P(AcrossHosts, EverythingIsRight) {
  const auto& host_of = GetParam().host_of;
  Hosts hosts(*std::max_element(host_of.begin(), host_of.end()) + 1);
  if (!hosts.ok()) GTEST_SKIP() << "network namespaces need root and iproute2";
  Gang gang(hosts, host_of, 60s, check_everything);
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) EXPECT_EQ(gang.wait(rank), 0) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Placed, AcrossHosts,
                         testing::Values(Placement{"OneRankOnEachOfTwo", {0, 1}},
                                         Placement{"TwoRanksOnEachOfTwo", {0, 0, 1, 1}},
                                         Placement{"Unevenly", {0, 0, 0, 1, 2}},
                                         Placement{"InTurns", {0, 1, 2, 0, 1, 2}},
                                         Placement{"OneRankOnEachOfFour", {0, 1, 2, 3}}),
                         [](const auto& placed) { return placed.param.name; });

// Adds up until something goes wrong, and expects these words in the error.
RankBody until_fault(const std::vector<std::string>& words, int pipe) {
  return [words, pipe](Communicator& world) {
    std::vector<float> data(100'000, 1.0F);
    for (int round = 0;; ++round) {
      auto done =
          world.all_reduce(data.data(), data.data(), data.size(), DataType::f32, Reduction::max).wait();
      if (round == 20) {
        ASSERT_EQ(write(pipe, "r", 1), 1);
      }
      if (done.ok()) continue;
      for (const std::string& word : words) {
        EXPECT_NE(done.error().text().find(word), std::string::npos) << done.error().text();
      }
      return;
    }
  };
}

class HostFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.ok()) GTEST_SKIP() << "network namespaces need root and iproute2";
    ASSERT_EQ(pipe(pipe_.data()), 0);
  }
  void wait_running(int ranks) {
    char running = 0;
    for (int i = 0; i < ranks; ++i) ASSERT_EQ(read(pipe_[0], &running, 1), 1);
  }
  Hosts hosts_{2};
  std::array<int, 2> pipe_{};
};

TEST_F(HostFaults, AKilledRankOfAnotherHostIsNamed) {
  Gang gang(hosts_, {0, 0, 1, 1}, 60s, until_fault({"rank 3 on node h1 died"}, pipe_[1]));
  wait_running(4);
  kill(gang.pid(3), SIGKILL);
  for (const std::size_t rank : {0UL, 1UL, 2UL}) EXPECT_EQ(gang.wait(rank), 0);
}

TEST_F(HostFaults, AHostThatIsCutOffIsNamed) {
  const auto near_side = until_fault({"rank 2 on node h1", "cannot be reached or it is frozen"}, pipe_[1]);
  // Who is on the wrong side of the cut only knows that rank 0 does not answer.
  const auto far_side = until_fault({"rank 0"}, pipe_[1]);
  Gang gang(hosts_, {0, 0, 1}, 2s,
            [&](Communicator& world) { (world.rank() < 2 ? near_side : far_side)(world); });
  wait_running(3);
  ASSERT_TRUE(hosts_.cut(1));
  for (const std::size_t rank : {0UL, 1UL, 2UL}) EXPECT_EQ(gang.wait(rank), 0);
}

TEST_F(HostFaults, AFrozenRankIsNamedByItsNeighbour) {
  Gang gang(hosts_, {0, 1, 1}, 2s, until_fault({"rank 2 on node h1", "it is stopped (SIGSTOP)"}, pipe_[1]));
  wait_running(3);
  kill(gang.pid(2), SIGSTOP);
  for (const std::size_t rank : {0UL, 1UL}) EXPECT_EQ(gang.wait(rank), 0);
}

TEST_F(HostFaults, DifferentOperationsAreToldApart) {
  Gang gang(hosts_, {0, 0, 1, 1}, 20s, [](Communicator& world) {
    float value = 0;
    Result<> done = world.rank() == 3
                        ? world.broadcast(&value, 1, DataType::f32, 0).wait()
                        : world.all_reduce(&value, &value, 1, DataType::f32, Reduction::sum).wait();
    if (done.ok()) done = world.barrier().wait();
    ASSERT_FALSE(done.ok());
    const std::string text = done.error().text();
    EXPECT_NE(text.find("rank 3 on node h1 called broadcast #1 where the others called all_reduce"),
              std::string::npos)
        << text;
  });
  for (const std::size_t rank : {0UL, 1UL, 2UL, 3UL}) EXPECT_EQ(gang.wait(rank), 0);
}

TEST_F(HostFaults, AbortReachesTheOtherHost) {
  Gang gang(hosts_, {0, 1, 1}, 60s, [](Communicator& world) {
    float value = 0;
    if (world.rank() == 2) world.abort("no more data");
    auto done = world.rank() == 2 ? world.barrier().wait() : world.recv(&value, 1, DataType::f32, 2).wait();
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().text().find("rank 2 on node h1 aborted: no more data"), std::string::npos)
        << done.error().text();
  });
  for (const std::size_t rank : {0UL, 1UL, 2UL}) EXPECT_EQ(gang.wait(rank), 0);
}

}  // namespace
}  // namespace tutti::comm
