// Logs are complete however slow the reader and whatever breaks, or the command says what is missing and
// exits with 1; and no reader disturbs a node.
#include <signal.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::lines_of;
using support::PartsCluster;
using support::read_text;
using support::until;
using support::write_text;

TEST(LogStreams, SlowFollowersGetAllOfAChattyRankAndItsNodeStays) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  constexpr std::uintmax_t lines = 630'000;  // of 100 bytes: below what a node keeps of a log
  const std::string id =
      cluster.submit({}, until(gate, "perl -e 'print \"x\" x 93, sprintf(\"%06d\\n\", $_) for 1.." +
                                         std::to_string(lines) + "'"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  std::vector<std::unique_ptr<support::Process>> followers;
  for (int at = 0; at < 4; ++at) {
    const std::string name = cluster.file("follower" + std::to_string(at));
    // Nobody reads at first: what is printed meanwhile fills every buffer on the way.
    followers.push_back(std::make_unique<support::Process>(
        std::vector<std::string>{"sh", "-c",
                                 "{ \"$0\" logs \"$1\" --follow --no-prefix; echo $? >\"$2.code\"; } | "
                                 "{ until [ -e \"$3\" ]; do sleep 0.1; done; cat >\"$2\"; }",
                                 support::tutti_program, id, name, cluster.file("read")},
        name + ".process", cluster.env()));
  }
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0) << "a job ends although nobody reads what it prints";
  EXPECT_EQ(cluster.run({}, "sleep 4").exit_code, 0) << "longer than a lease";
  write_text(cluster.file("read"), "");
  for (int at = 0; at < 4; ++at) {
    const std::string name = cluster.file("follower" + std::to_string(at));
    EXPECT_EQ(followers[static_cast<std::size_t>(at)]->wait(), 0);
    EXPECT_EQ(read_text(name + ".code"), "0\n") << read_text(name + ".process.err");
    EXPECT_EQ(std::filesystem::file_size(name), lines * 100);
    EXPECT_TRUE(read_text(name).ends_with(std::to_string(lines) + "\n"));
  }
  EXPECT_FALSE(has(read_text(cluster.file("controller.err")), "has disconnected"))
      << read_text(cluster.file("controller.err"));
}

TEST(LogStreams, WhoDoesNotFollowReadsAsFarAsItWentWhenHeAsked) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id = cluster.submit({}, "echo first; while :; do echo and so on; done");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  ASSERT_TRUE(eventually([&] {
    return has(cluster.tutti({"logs", id, "--no-prefix"}).out, "first\nand so on");
  })) << "it ends although the rank prints on";
  EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
}

TEST(LogStreams, ATailOfNoLinesIsOnlyWhatIsNew) {
  const support::TestCluster cluster(1);
  const std::string go = cluster.file("go");
  const std::string id =
      cluster.submit({}, "echo old; until test -e " + go + "; do sleep 0.01; done; echo new");
  ASSERT_TRUE(support::eventually([&] { return has(cluster.tutti({"logs", id}).out, "old"); }));
  const auto none = cluster.tutti({"logs", id, "--tail", "0"});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(none.out, "");
  const auto follower = cluster.start({"logs", id, "--follow", "--tail", "0"}, "followed");
  const auto second = cluster.start({"logs", id, "--follow", "--tail", "1"}, "seen");
  ASSERT_TRUE(support::eventually([&] { return has(support::read_text(cluster.file("seen")), "old"); }));
  support::write_text(go, "");
  EXPECT_EQ(follower->wait(), 0);
  EXPECT_FALSE(has(support::read_text(cluster.file("followed")), "old"));
  EXPECT_EQ(cluster.wait(id), 0);
}

TEST(LogStreams, AFollowedTailSkipsNothingOverAnAgentsRestart) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit(
      {}, "i=0; while [ ! -e '" + gate + "' ]; do echo $i; i=$((i+1)); sleep 0.005; done; echo $i");
  ASSERT_TRUE(eventually([&] { return lines_of(cluster.log(id, 0)).size() > 20; }));
  const auto follow = cluster.start({"logs", id, "--follow", "--tail", "1", "--no-prefix"}, "out");
  const auto seen = [&] { return lines_of(read_text(cluster.file("out"))).size(); };
  for (int restart = 0; restart < 3; ++restart) {
    const std::size_t before = seen();
    ASSERT_TRUE(eventually([&] { return seen() > before + 20; }));
    cluster.agent("n1").signal(SIGKILL);
    cluster.agent("n1").wait();
    ASSERT_TRUE(cluster.start_agent("n1"));
  }
  const std::size_t before = seen();
  ASSERT_TRUE(eventually([&] { return seen() > before + 20; }));
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(follow->wait(), 0);
  const auto lines = lines_of(read_text(cluster.file("out")));
  const auto all = lines_of(cluster.log(id, 0));
  ASSERT_GT(lines.size(), 60U);
  EXPECT_GE(std::stoi(lines.front()), 19) << "the tail, not the whole log";
  for (std::size_t at = 1; at < lines.size(); ++at)
    ASSERT_EQ(std::stoi(lines[at]), std::stoi(lines[at - 1]) + 1);
  EXPECT_EQ(lines.back(), all.back());
}

TEST(LogStreams, OfAFrozenNodeAreMissingAndToldSo) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id = cluster.submit({}, "echo hello");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.tutti({"logs", id}).exit_code, 0);
  cluster.agent("n1").signal(SIGSTOP);
  const auto frozen = cluster.tutti({"logs", id});
  EXPECT_EQ(frozen.exit_code, 1);
  EXPECT_FALSE(frozen.timed_out);
  EXPECT_TRUE(has(frozen.err, "node n1 does not answer: its logs are missing here")) << frozen.err;
  cluster.agent("n1").signal(SIGCONT);
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  EXPECT_TRUE(eventually([&] { return cluster.tutti({"logs", id}).out == "[0] hello\n"; }));
}

TEST(LogStreams, WhatANodeDoesNotKeepIsToldAndCounts) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id = cluster.submit({}, "perl -e 'print \"x\" x 99, \"\\n\" for 1..900000'; echo end");
  EXPECT_EQ(cluster.wait(id), 0);
  const auto logs = cluster.tutti({"logs", id, "--no-prefix"});
  EXPECT_EQ(logs.exit_code, 1);
  EXPECT_TRUE(has(logs.err, "bytes of rank 0's log are missing here")) << logs.err;
  EXPECT_TRUE(logs.out.ends_with("\nend\n"));
  EXPECT_EQ(cluster.tutti({"logs", id, "--tail", "1"}).exit_code, 0) << "all that was asked for is there";
}

}  // namespace
}  // namespace tutti
