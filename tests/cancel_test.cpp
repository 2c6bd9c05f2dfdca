// Jobs that are cancelled, by a command or by Ctrl-C.
#include <signal.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::eventually;
using support::has;
using support::PartsCluster;
using support::read_text;
using support::TestCluster;
using support::until;
using support::write_text;

TEST(Jobs, CancelEndsEveryProcessOfTheRank) {
  const TestCluster cluster;
  const std::string started = cluster.file("started");
  const std::string mark = "MARK=" + cluster.file("mark");
  // A grandchild in a session of its own that does not listen to SIGTERM.
  const std::string stubborn = "trap \"\" TERM; echo >" + started + "; while :; do sleep 0.1; done";
  const std::string id =
      cluster.submit({"--env", mark, "--grace", "300ms"}, "(setsid sh -c '" + stubborn + "' &) ; sleep 1000");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(started); }));
  ASSERT_GE(support::processes_naming(mark).size(), 2U);
  EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
  EXPECT_NE(cluster.wait(id), 0);
  EXPECT_TRUE(support::processes_naming(mark).empty()) << "the end is reported when all is gone, not before";
  const json job = cluster.job(id);
  EXPECT_EQ(job["state"], "cancelled");
  EXPECT_TRUE(has(job["reason"], "cancelled by ")) << job["reason"];
  const auto again = cluster.tutti({"cancel", id});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(has(again.err, "has ended already")) << again.err;
}

TEST(Jobs, OfSeveralThatAreCancelledNoneIsSparedByAnother) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string over = cluster.submit({}, "true");
  ASSERT_EQ(cluster.wait(over), 0);
  const std::string goes_on = cluster.submit({}, "sleep 1000");
  const auto cancelled = cluster.tutti({"cancel", over, goes_on});
  EXPECT_NE(cancelled.exit_code, 0);
  EXPECT_TRUE(has(cancelled.err, "has ended already")) << cancelled.err;
  EXPECT_TRUE(cluster.becomes(goes_on, "cancelled"));
}

// `tutti run` with a job that goes on until it is cancelled, and Ctrl-C for it.
class Interrupted : public testing::Test {
 protected:
  void run(const std::string& script, const std::string& grace = "500ms") {
    const std::string begin = "echo begun >" + cluster_.file("begun") + "; ";
    run_ = cluster_.start({"run", "--grace", grace, "--", "sh", "-c", begin + script}, "out");
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(cluster_.file("begun")); }));
    ASSERT_TRUE(cluster_.becomes("1", "running"));
    // The log has begun to arrive, so the command follows the job.
    ASSERT_TRUE(eventually([&] { return !read_text(cluster_.file("out")).empty(); }));
  }
  // Ctrl-C, and what is said then.
  bool says(const std::string& part) {
    run_->signal(SIGINT);
    return eventually([&] { return has(read_text(cluster_.file("out.err")), part); });
  }

  TestCluster cluster_;
  std::unique_ptr<support::Process> run_;
};

TEST_F(Interrupted, TheFirstCtrlCAsksAndTheSecondCancels) {
  const std::string go_on = cluster_.file("go-on");
  run("echo first words; " + until(go_on, "echo later words; exec sleep 1000"));
  ASSERT_TRUE(says("job 1 : goes on; Ctrl-C again cancels it")) << read_text(cluster_.file("out.err"));
  write_text(go_on, "");
  EXPECT_TRUE(eventually([&] { return has(read_text(cluster_.file("out")), "[0] later words\n"); }))
      << "the job goes on, and so do its logs";
  EXPECT_EQ(cluster_.state("1"), "running");
  ASSERT_TRUE(says("job 1 : is being cancelled")) << read_text(cluster_.file("out.err"));
  EXPECT_EQ(run_->wait(), 130);
  EXPECT_EQ(cluster_.state("1"), "cancelled");
  EXPECT_TRUE(cluster_.ranks_on("n1").empty());
}

TEST_F(Interrupted, AJobThatPrintsWithoutAPauseIsCancelledToo) {
  run("exec yes");
  ASSERT_TRUE(says("goes on"));
  ASSERT_TRUE(says("is being cancelled"));
  EXPECT_EQ(run_->wait(), 130);
  EXPECT_EQ(cluster_.state("1"), "cancelled");
}

TEST_F(Interrupted, TheThirdCtrlCLeavesAJobThatDoesNotWantToEnd) {
  const std::string gate = cluster_.file("gate");
  run("trap '' TERM; echo stubborn; " + until(gate), "1h");
  ASSERT_TRUE(says("goes on"));
  ASSERT_TRUE(says("is being cancelled"));
  run_->signal(SIGINT);
  EXPECT_EQ(run_->wait(), 130);
  EXPECT_EQ(cluster_.state("1"), "running") << "its grace period is not over";
  write_text(gate, "");
  EXPECT_NE(cluster_.wait("1"), 0);
  EXPECT_EQ(cluster_.state("1"), "cancelled");
}

TEST_F(Interrupted, WhoWaitsForAControllerThatIsAwayCanLeave) {
  run("echo words; exec sleep 1000");
  ASSERT_EQ(::kill(cluster_.controller_pid(), SIGKILL), 0);
  ASSERT_TRUE(says("goes on"));
  ASSERT_TRUE(says("cannot be cancelled now"));
  run_->signal(SIGINT);
  EXPECT_EQ(run_->wait(), 130);
}

TEST(Jobs, AQueuedJobIsCancelledWithoutHavingRun) {
  const TestCluster cluster(1, 1);
  const std::string gate = cluster.file("gate");
  const std::string first = cluster.submit({"--gpus", "1"}, until(gate));
  const std::string second = cluster.submit({"--gpus", "1"}, "echo >" + cluster.file("ran"));
  ASSERT_TRUE(cluster.becomes(first, "running"));
  EXPECT_EQ(cluster.tutti({"cancel", second}).exit_code, 0);
  EXPECT_EQ(cluster.state(second), "cancelled");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(first), 0);
  EXPECT_FALSE(std::filesystem::exists(cluster.file("ran")));
}

TEST(Jobs, AnArrayIsCancelledAsAWhole) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string other = cluster.submit({}, until(gate));
  const std::string id = cluster.submit({"--array", "0-9%2", "--grace", "200ms"}, "sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  EXPECT_EQ(cluster.tutti({"cancel", std::to_string(std::stoi(id) + 7), "--array"}).exit_code, 0);
  EXPECT_NE(cluster.tutti({"wait", id, "--array"}).exit_code, 0);
  const json elements = cluster.json({"jobs", "--array", id});
  ASSERT_EQ(elements.size(), 10U);
  for (const auto& element : elements) EXPECT_EQ(element["state"], "cancelled") << element;
  EXPECT_EQ(cluster.tutti({"cancel", id, "--array"}).exit_code, 2) << "all of it has ended";
  EXPECT_EQ(cluster.tutti({"cancel", other, "--array"}).exit_code, 2) << "it is no array";
  EXPECT_EQ(cluster.state(other), "running");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(other), 0);
}

}  // namespace
}  // namespace tutti
