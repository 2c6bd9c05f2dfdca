// Gangs whose ranks stop coming: while they wait and after they have given up, `tutti show` names the
// culprit.
#include <csignal>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::eventually;

class Hangs : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"n1", "n2"}) ASSERT_TRUE(cluster_.start_agent(name));
  }

  // A gang of three in collectives, whose rank 2 freezes after a while.
  std::string submit_gang(const std::string& deadline) {
    const std::string script = "[ $RANK = 2 ] && (sleep 0.5; kill -STOP $$) & exec " +
                               support::tutti_program + " bench comm --bytes 1K --time 60s --deadline " +
                               deadline;
    return cluster_.submit({"--ranks", "3", "--ranks-per-node", "2", "--restarts", "0"}, script);
  }

  support::PartsCluster cluster_{support::with_own_address()};
};

bool names_the_culprit(const std::string& text) {
  return text.find("rank 2 on node ") != std::string::npos && text.find(" #") != std::string::npos &&
         text.find("it is stopped (SIGSTOP)") != std::string::npos;
}

TEST_F(Hangs, AfterTheDeadlineTheReasonNamesTheRank) {
  const std::string id = submit_gang("2s");
  EXPECT_NE(cluster_.wait(id), 0);
  const std::string reason = cluster_.job(id)["reason"];
  EXPECT_TRUE(names_the_culprit(reason)) << reason;
}

TEST_F(Hangs, WhileItWaitsShowSaysForWhom) {
  const std::string id = submit_gang("10m");
  std::string shown;
  EXPECT_TRUE(eventually([&] {
    shown = cluster_.tutti({"show", id}).out;
    return names_the_culprit(shown);
  })) << shown;
  EXPECT_EQ(cluster_.tutti({"cancel", id}).exit_code, 0);
}

}  // namespace
}  // namespace tutti
