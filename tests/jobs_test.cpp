// Jobs as a user meets them: what ranks see, what ends them, what is printed and what scripts can rely on.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using support::eventually;
using support::has;
using support::lines_of;
using support::PartsCluster;
using support::read_text;
using support::TestCluster;
using support::until;
using support::write_text;

std::map<std::string, std::string> variables(const std::string& env) {
  std::map<std::string, std::string> found;
  for (const auto& line : lines_of(env))
    found[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  return found;
}

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

// ---- what ranks see

TEST(Jobs, AGangSeesWhereItsRanksAre) {
  const TestCluster cluster(2, 4);
  const std::string id = cluster.submit({"--nodes", "2", "--ranks-per-node", "2", "--gpus-per-rank", "2"},
                                        "env; test -d \"$TUTTI_CHECKPOINT_DIR\" && echo CHECKPOINTS=there");
  ASSERT_EQ(cluster.wait(id), 0);
  std::set<std::string> master_ports;
  std::set<std::string> nodes;
  for (int rank = 0; rank < 4; ++rank) {
    auto env = variables(cluster.log(id, rank));
    EXPECT_EQ(env["RANK"], std::to_string(rank));
    EXPECT_EQ(env["WORLD_SIZE"], "4");
    EXPECT_EQ(env["LOCAL_RANK"], std::to_string(rank % 2));
    EXPECT_EQ(env["LOCAL_WORLD_SIZE"], "2");
    EXPECT_EQ(env["NODE_RANK"], std::to_string(rank / 2));
    EXPECT_EQ(env["MASTER_ADDR"], "127.0.0.1");
    EXPECT_EQ(env["CUDA_VISIBLE_DEVICES"], rank % 2 == 0 ? "0,1" : "2,3");
    EXPECT_EQ(env["TUTTI_JOB"], id);
    EXPECT_EQ(env["TUTTI_ATTEMPT"], "0");
    EXPECT_EQ(env["CHECKPOINTS"], "there");
    EXPECT_FALSE(env.contains("SLURM_PROCID")) << "only scripts with #SBATCH lines ask for those";
    EXPECT_FALSE(env.contains("TUTTI_HOME")) << "the agent's own environment is not the job's";
    master_ports.insert(env["MASTER_PORT"]);
    nodes.insert(env["TUTTI_NODE"]);
  }
  EXPECT_EQ(master_ports.size(), 1U);
  EXPECT_GT(std::stoi(*master_ports.begin()), 1024);
  EXPECT_EQ(nodes, (std::set<std::string>{"n1", "n2"}));
}

TEST(Jobs, ShareOfAGpu) {
  const TestCluster cluster(1, 2);
  const std::string gate = cluster.file("gate");
  std::vector<std::string> ids;
  for (int at = 0; at < 5; ++at) ids.push_back(cluster.submit({"--gpus-per-rank", "0.4"}, until(gate)));
  for (int at = 0; at < 4; ++at) ASSERT_TRUE(cluster.becomes(ids[static_cast<std::size_t>(at)], "running"));
  EXPECT_EQ(cluster.state(ids[4]), "queued") << "two of 0.4 fill a GPU, a third would exceed it";
  EXPECT_NE(cluster.job(ids[4])["reason"], "");
  const std::string small = cluster.submit({"--gpus-per-rank", "0.2"}, until(gate));
  ASSERT_TRUE(cluster.becomes(small, "running")) << "what is left of a GPU can be used";
  std::multiset<int> free;
  const json busy = cluster.node("n1");
  for (const auto& device : busy["devices"]) free.insert(device["share_free"].get<int>());
  EXPECT_EQ(free, (std::multiset<int>{0, 200}));
  write_text(gate, "");
  for (const auto& id : ids) EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.wait(small), 0);
  const json idle = cluster.node("n1");
  for (const auto& device : idle["devices"]) EXPECT_EQ(device["share_free"], 1000);
}

// ---- how jobs end

TEST(Jobs, ExitCodesAndSignals) {
  const TestCluster cluster;
  EXPECT_EQ(cluster.run({}, "exit 0").exit_code, 0);
  EXPECT_EQ(cluster.run({}, "exit 7").exit_code, 7);
  EXPECT_EQ(cluster.run({}, "kill -KILL $$").exit_code, 137);
  EXPECT_EQ(cluster.run({}, "kill -TERM $$").exit_code, 143);
  const std::string id = cluster.submit({}, "kill -SEGV $$");
  EXPECT_EQ(cluster.wait(id), 139);
  const json job = cluster.job(id);
  EXPECT_EQ(job["state"], "failed");
  EXPECT_EQ(job["exit_code"], 139);
  EXPECT_TRUE(has(job["reason"], "signal 11")) << job["reason"];
}

TEST(Jobs, AGangEndsWholeAndNamesTheRankThatFailed) {
  const TestCluster cluster(2, 2);
  const auto run = cluster.run({"--nodes", "2", "--grace", "30s"},
                               "[ $RANK = 0 ] && exec sleep 1000; echo the last words; exit 3");
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_TRUE(has(run.err, "rank 1 on node n2 exited with 3")) << run.err;
  EXPECT_TRUE(has(run.err, "the last words")) << run.err;
  const json job = cluster.job("1");
  EXPECT_EQ(job["rank_states"][0]["exit_code"], 143) << "rank 0 was asked to end";
  EXPECT_EQ(job["exit_code"], 3) << "the first failure counts, not what it led to";
  EXPECT_TRUE(has(cluster.tutti({"show", "1"}).out, "the last words"));
}

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

TEST(Jobs, MoreThanAreShownIsSaid) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  for (int at = 0; at < 3; ++at) ASSERT_EQ(cluster.run({}, "true").exit_code, 0);
  const auto some = cluster.tutti({"jobs", "--all", "--limit", "2", "--json"});
  EXPECT_TRUE(has(some.err, "there are more than these 2")) << some.err;
  EXPECT_FALSE(has(cluster.tutti({"jobs", "--all", "--limit", "3"}).err, "more than"));
  EXPECT_EQ(cluster.tutti({"logs", "1", "--rank", "7"}).exit_code, 2) << "there is no such rank";
}

TEST(Jobs, ACopyOfTheLogThatCannotBeWrittenIsTold) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const auto finished = cluster.run({"--output", "/dev/full"}, "echo one; sleep 0.1; echo two");
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_TRUE(has(finished.out, "/dev/full ends here: No space left on device")) << finished.out;
  EXPECT_TRUE(has(finished.out, "two"));
  const std::string told = "the copy of its log in /dev/full is cut: No space left on device";
  const auto show = cluster.tutti({"show", "1"});
  EXPECT_TRUE(has(show.out, told)) << show.out;
  EXPECT_TRUE(has(support::read_text(cluster.file("agent-n1.err")), told));
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

TEST(Jobs, TimeLimit) {
  const TestCluster cluster;
  const auto run =
      cluster.run({"--time", "1s", "--grace", "100ms"}, "trap '' TERM; while :; do sleep 0.1; done");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_TRUE(has(run.err, "time limit of 1s")) << run.err;
  EXPECT_EQ(cluster.state("1"), "failed");
}

TEST(Jobs, RestartOnFailure) {
  const TestCluster cluster;
  const std::string twice = cluster.submit({"--restart-on-failure", "2"}, "[ $TUTTI_ATTEMPT = 2 ]");
  EXPECT_EQ(cluster.wait(twice), 0);
  EXPECT_EQ(cluster.job(twice)["attempt"], 2);
  const std::string once = cluster.submit({"--restart-on-failure", "1"}, "exit 5");
  EXPECT_EQ(cluster.wait(once), 5);
  EXPECT_EQ(cluster.job(once)["attempt"], 1);
  const std::string never = cluster.submit({}, "exit 5");
  EXPECT_EQ(cluster.wait(never), 5);
  EXPECT_EQ(cluster.job(never)["attempt"], 0) << "a program that fails is not started again unasked";
}

// ---- many jobs

TEST(Jobs, AnArrayKeepsItsLimit) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string marks = cluster.file("marks");
  const std::string id = cluster.submit(
      {"--array", "3-10%2"},
      "echo + >>" + marks + "; " +
          until(gate, "echo $TUTTI_ARRAY_INDEX >>" + cluster.file("indices") + "; echo - >>" + marks));
  ASSERT_TRUE(eventually([&] { return lines_of(read_text(marks)).size() == 2; }));
  const json waiting = cluster.json({"jobs"});
  ASSERT_EQ(waiting.size(), 8U);
  EXPECT_EQ(waiting[0]["array_id"], id);
  EXPECT_TRUE(has(waiting[0]["reason"], "at most 2 run at once")) << waiting[0]["reason"];
  write_text(gate, "");
  for (int at = 0; at < 8; ++at) EXPECT_EQ(cluster.wait(std::to_string(std::stoi(id) + at)), 0);
  int running = 0;
  for (const auto& mark : lines_of(read_text(marks))) {
    running += mark == "+" ? 1 : -1;
    EXPECT_LE(running, 2);
  }
  std::multiset<std::string> indices;
  for (const auto& index : lines_of(read_text(cluster.file("indices")))) indices.insert(index);
  EXPECT_EQ(indices, (std::multiset<std::string>{"10", "3", "4", "5", "6", "7", "8", "9"}));
}

TEST(Jobs, AnArrayIsHandledAsAWhole) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string other = cluster.submit({}, until(gate));
  const std::string id = cluster.submit(
      {"--array", "1-4"}, until(gate, "echo index $TUTTI_ARRAY_INDEX; exit $((TUTTI_ARRAY_INDEX % 4))"));
  const std::string last = std::to_string(std::stoi(id) + 3);
  const json elements = cluster.json({"jobs", "--array", last});
  ASSERT_EQ(elements.size(), 4U);
  std::set<std::string> indices;
  for (const auto& element : elements) {
    EXPECT_EQ(element["array_id"], id);
    EXPECT_EQ(element["array_count"], 4);
    indices.insert(element["array_index"].dump());
  }
  EXPECT_EQ(indices, (std::set<std::string>{"1", "2", "3", "4"}));
  EXPECT_TRUE(has(cluster.tutti({"show", last}).out, "index 4 of the 4 of array " + id))
      << cluster.tutti({"show", last}).out;
  const auto waits = cluster.start({"wait", last, "--array"}, "out");
  write_text(gate, "");
  EXPECT_EQ(waits->wait(), 3) << "the worst of them: " << read_text(cluster.file("out.err"));
  EXPECT_EQ(cluster.tutti({"wait", "--array", id}).exit_code, 3) << "also when all of it is over";
  EXPECT_EQ(cluster.json({"jobs", "--array", id}).size(), 4U);
  EXPECT_EQ(cluster.tutti({"logs", id, "--array"}).out,
            "[1.0] index 1\n[2.0] index 2\n[3.0] index 3\n[4.0] index 4\n");
  const auto alone = cluster.tutti({"wait", other, "--array"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_TRUE(has(alone.err, "job " + other + " is not an element of an array")) << alone.err;
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

TEST(Jobs, OneAfterAnother) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string first = cluster.submit({}, until(gate, "exit 1"));
  const std::string after = cluster.submit({"--after", first}, "true");
  const std::string doomed = cluster.submit({"--after-success", first}, "echo >" + cluster.file("ran"));
  const std::string doomed_too = cluster.submit({"--after-success", doomed}, "echo >" + cluster.file("ran"));
  const std::string last = cluster.submit({"--after-success", after}, "true");
  ASSERT_TRUE(cluster.becomes(first, "running"));
  EXPECT_EQ(cluster.state(after), "queued");
  EXPECT_TRUE(has(cluster.tutti({"show", after}).out, "waits for job " + first + " to end"))
      << cluster.tutti({"show", after}).out;
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(after), 0);
  EXPECT_EQ(cluster.wait(last), 0);
  EXPECT_NE(cluster.wait(doomed), 0);
  EXPECT_NE(cluster.wait(doomed_too), 0);
  EXPECT_EQ(cluster.state(doomed), "cancelled");
  EXPECT_TRUE(has(cluster.job(doomed)["reason"], "job " + first)) << cluster.job(doomed)["reason"];
  EXPECT_FALSE(std::filesystem::exists(cluster.file("ran")));
}

TEST(Jobs, WhatNeedsASuccessDoesNotFollowAFailureOfLongAgo) {
  const TestCluster cluster;
  const std::string failed = cluster.submit({}, "exit 1");
  EXPECT_EQ(cluster.wait(failed), 1);
  const auto late = cluster.run({"--after-success", failed}, "echo >" + cluster.file("ran"));
  EXPECT_NE(late.exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(cluster.file("ran")));
}

TEST(Jobs, ShowSaysWhyAJobWaits) {
  const TestCluster cluster(1, 2);
  const std::string gate = cluster.file("gate");
  const std::string first = cluster.submit({"--gpus", "2"}, until(gate));
  const std::string second = cluster.submit({"--gpus", "1"}, "true");
  ASSERT_TRUE(cluster.becomes(first, "running"));
  ASSERT_TRUE(eventually([&] {
    return has(cluster.tutti({"show", second}).out, "GPU");
  })) << cluster.tutti({"show", second}).out;
  EXPECT_TRUE(has(cluster.tutti({"show", second}).out, "  waits ")) << cluster.tutti({"show", second}).out;
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(second), 0);
}

// ---- files

TEST(Jobs, SubmitOfAYamlFilePrintsTheIdAndNothingElse) {
  const TestCluster cluster(1, 2);
  write_text(cluster.file("job.yaml"),
             "name: from a file\nranks: 2\ngpus-per-rank: 1\nenv: {GREETING: hello}\n"
             "command: echo $GREETING from $RANK\n");
  const auto submitted = cluster.tutti({"submit", cluster.file("job.yaml")});
  EXPECT_EQ(submitted.exit_code, 0);
  EXPECT_EQ(submitted.out, "1\n");
  EXPECT_EQ(submitted.err, "");
  EXPECT_EQ(cluster.wait("1"), 0);
  EXPECT_EQ(cluster.log("1", 1), "hello from 1\n");
  EXPECT_EQ(cluster.job("1")["name"], "from a file");
}

TEST(Jobs, AScriptWithSbatchLines) {
  const TestCluster cluster(2, 2);
  write_text(cluster.file("job.sh"),
             "#!/bin/bash\n#SBATCH --job-name=slurmish\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n"
             "#SBATCH --gpus-per-task=1\n#SBATCH --time=00:10:00\nenv | grep ^SLURM_\necho arguments $*\n");
  const auto submitted = cluster.tutti({"submit", cluster.file("job.sh"), "one", "two"});
  EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
  ASSERT_EQ(submitted.out, "1\n");
  EXPECT_EQ(cluster.wait("1"), 0);
  const std::string log = cluster.log("1", 3);
  auto env = variables(log);
  EXPECT_EQ(env["SLURM_JOB_ID"], "1");
  EXPECT_EQ(env["SLURM_JOB_NAME"], "slurmish");
  EXPECT_EQ(env["SLURM_PROCID"], "3");
  EXPECT_EQ(env["SLURM_NTASKS"], "4");
  EXPECT_EQ(env["SLURM_LOCALID"], "1");
  EXPECT_EQ(env["SLURM_NODEID"], "1");
  EXPECT_EQ(env["SLURM_NNODES"], "2");
  EXPECT_EQ(env["SLURM_JOB_NODELIST"], "n1,n2");
  EXPECT_TRUE(has(log, "arguments one two\n")) << log;
}

TEST(Jobs, SyncShipsAFolder) {
  const TestCluster cluster(2, 1);
  const std::string work = cluster.file("work");
  std::filesystem::create_directories(work + "/data");
  write_text(work + "/say", "#!/bin/sh\ncat data/words\n");
  std::filesystem::permissions(work + "/say", std::filesystem::perms::owner_all);
  write_text(work + "/data/words", "first words\n");
  write_text(work + "/secret.key", "secret\n");
  write_text(work + "/.tuttiignore", "*.key\n");
  const std::string script = "./say; ls; pwd";
  const auto first = cluster.run({"--sync", work, "--nodes", "2", "--no-prefix"}, script);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(has(first.out, "first words\n")) << first.out;
  EXPECT_FALSE(has(first.out, "secret.key")) << first.out;
  EXPECT_FALSE(has(first.out, work + "\n")) << "it runs in a copy: " << first.out;
  write_text(work + "/data/words", "other words\n");
  const auto second = cluster.run({"--sync", work, "--nodes", "2", "--no-prefix"}, script);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(has(second.out, "other words\n")) << second.out;
  EXPECT_FALSE(has(second.out, "first words\n")) << second.out;
}

TEST(Jobs, TheOutputOfAShippedJobIsWhereItWasSubmitted) {
  const TestCluster cluster(1, 1);
  const std::string work = cluster.file("work");
  std::filesystem::create_directories(work);
  write_text(work + "/words", "shipped words\n");
  const std::string out = "sync-output-" + std::to_string(::getpid());
  const auto run = cluster.run({"--sync", work, "--output", out + "-%j.log"}, "cat words");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(has(read_text(out + "-1.log"), "shipped words")) << read_text(out + "-1.log");
  std::filesystem::remove(out + "-1.log");
  const auto both = cluster.run({"--sync", work, "--workdir", work}, "true");
  EXPECT_EQ(both.exit_code, 2) << both.err;
  EXPECT_TRUE(has(both.err, "workdir : ranks of a job with sync start in the shipped folder")) << both.err;
}

// The contents that a program keeps below a folder, each with the number of its file: one that is stored anew
// has another number.
std::map<std::string, std::uint64_t> blobs_in(const std::string& folder) {
  std::map<std::string, std::uint64_t> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    struct stat status {};
    if (entry.is_regular_file() && ::stat(entry.path().c_str(), &status) == 0)
      found[entry.path()] = status.st_ino;
  }
  return found;
}

TEST(Jobs, OfALargeFileOnlyWhatChangedIsShipped) {
  const TestCluster cluster(1, 1);
  const std::string work = cluster.file("work");
  std::filesystem::create_directories(work);
  std::string content;
  for (int line = 0; content.size() < 40U << 20; ++line) content += "line " + std::to_string(line) + "\n";
  content.resize(40U << 20);
  const auto ship = [&] {
    write_text(work + "/large", content);
    const auto local = support::run({"sha256sum", work + "/large"});
    const auto run = cluster.run({"--sync", work, "--no-prefix"}, "sha256sum <large");
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out.substr(0, 64), local.out.substr(0, 64));
  };
  const std::vector<std::string> stores{cluster.home() + "/controller/blobs",
                                        cluster.home() + "/nodes/n1/blobs"};
  ship();
  std::vector<std::map<std::string, std::uint64_t>> before;
  for (const auto& store : stores) {
    before.push_back(blobs_in(store));
    EXPECT_EQ(before.back().size(), 6U) << "five chunks of 8 MiB and the manifest in " << store;
  }
  content[20U << 20] = '!';
  ship();
  for (std::size_t at = 0; at < stores.size(); ++at) {
    const auto after = blobs_in(stores[at]);
    EXPECT_EQ(after.size(), 8U) << "one other chunk and one other manifest in " << stores[at];
    for (const auto& [path, number] : before[at]) EXPECT_EQ(after.at(path), number) << "sent again: " << path;
  }
}

// ---- logs

TEST(Jobs, RunStreamsEachLineWithItsRank) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const auto run =
      cluster.start({"run", "--ranks", "3", "--", "sh", "-c", "echo begun $RANK; " + until(gate)}, "out");
  ASSERT_TRUE(eventually([&] { return lines_of(read_text(cluster.file("out"))).size() == 3; }));
  EXPECT_EQ(cluster.state("1"), "running") << "the lines came before the end";
  auto lines = lines_of(read_text(cluster.file("out")));
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[0] begun 0", "[1] begun 1", "[2] begun 2"}));
  write_text(gate, "");
  EXPECT_EQ(run->wait(), 0);
}

TEST(Jobs, LogsOfARankTheirTailAndFollowing) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string id =
      cluster.submit({"--ranks", "2"}, "seq -f \"r$RANK %g\" 10; " + until(gate, "echo \"r$RANK end\""));
  ASSERT_TRUE(eventually([&] { return lines_of(cluster.tutti({"logs", id}).out).size() == 20; }));
  const auto follow = cluster.start({"logs", id, "--follow", "--rank", "1", "--tail", "1"}, "out");
  ASSERT_TRUE(eventually([&] { return read_text(cluster.file("out")) == "[1] r1 10\n"; }));
  write_text(gate, "");
  EXPECT_EQ(follow->wait(), 0);
  EXPECT_EQ(read_text(cluster.file("out")), "[1] r1 10\n[1] r1 end\n");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.tutti({"logs", id, "--rank", "0", "--tail", "2"}).out, "[0] r0 10\n[0] r0 end\n");
  EXPECT_EQ(cluster.tutti({"logs", id, "--follow", "--rank", "0", "--tail", "1"}).out, "[0] r0 end\n");
  EXPECT_EQ(cluster.tutti({"logs", "77"}).exit_code, 2);
  EXPECT_EQ(cluster.tutti({"logs", id, "--rank", "7"}).out, "");
}

TEST(Jobs, LogsArriveByteForByte) {
  const TestCluster cluster;
  // Letters of three bytes each, and more of them than one message holds.
  const std::string id = cluster.submit({}, "yes '\xe2\x82\xac\xe2\x82\xac' | head -n 60000; echo done");
  EXPECT_EQ(cluster.wait(id), 0);
  std::string expected;
  for (int at = 0; at < 60000; ++at) expected += "\xe2\x82\xac\xe2\x82\xac\n";
  const std::string log = cluster.log(id, 0);
  EXPECT_EQ(log.size(), expected.size() + 5);
  EXPECT_TRUE(log == expected + "done\n")
      << "the first difference is at byte "
      << std::mismatch(log.begin(), log.end(), expected.begin(), expected.end()).first - log.begin();
}

// ---- nodes

TEST(Jobs, DrainAndResume) {
  const TestCluster cluster(2, 1);
  const std::string gate = cluster.file("gate");
  EXPECT_EQ(cluster.tutti({"drain", "n1"}).exit_code, 0);
  EXPECT_EQ(cluster.node("n1")["state"], "drained");
  const std::string first = cluster.submit({"--gpus", "1"}, until(gate));
  ASSERT_TRUE(cluster.becomes(first, "running"));
  EXPECT_EQ(cluster.job(first)["nodes"], json({"n2"}));
  const std::string waiting = cluster.submit({"--gpus", "1"}, until(gate));
  EXPECT_EQ(cluster.tutti({"drain", "n2"}).exit_code, 0);
  EXPECT_EQ(cluster.node("n2")["state"], "draining") << "what runs there may end there";
  EXPECT_EQ(cluster.state(first), "running");
  EXPECT_EQ(cluster.state(waiting), "queued");
  EXPECT_EQ(cluster.tutti({"resume", "n1"}).exit_code, 0);
  ASSERT_TRUE(cluster.becomes(waiting, "running"));
  EXPECT_EQ(cluster.job(waiting)["nodes"], json({"n1"}));
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(first), 0);
  EXPECT_TRUE(cluster.node_becomes("n2", "drained"));
  EXPECT_EQ(cluster.tutti({"drain", "n7"}).exit_code, 2);
}

TEST(Jobs, DrainNowMovesGangs) {
  const TestCluster cluster(2, 1);
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--gpus", "1", "--grace", "200ms"}, until(gate));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const std::string from = cluster.job(id)["nodes"][0];
  EXPECT_EQ(cluster.tutti({"drain", "--now", from}).exit_code, 0);
  ASSERT_TRUE(eventually([&] { return cluster.job(id)["attempt"] == 1 && cluster.state(id) == "running"; }));
  EXPECT_EQ(cluster.job(id)["nodes"], json({from == "n1" ? "n2" : "n1"}));
  EXPECT_TRUE(cluster.ranks_on(from).empty());
  EXPECT_EQ(cluster.node(from)["state"], "drained");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
}

TEST(Jobs, RanksThatEndWellWhenTheyAreMovedAreNotDone) {
  const TestCluster cluster(2, 2);
  const std::string gate = cluster.file("gate");
  // What a program does that saves its work when it is asked to end. The file tells that it is listening.
  const std::string script = "trap 'echo >" + cluster.file("saved") + ".$RANK; exit 0' TERM; echo >" +
                             cluster.file("ready") + ".$RANK; " +
                             until(gate, "echo attempt $TUTTI_ATTEMPT of $WORLD_SIZE");
  const std::string id =
      cluster.submit({"--ranks", "2:4", "--gpus-per-rank", "1", "--restarts", "0", "--grace", "30s"}, script);
  const auto all_have = [&](const std::string& name) {
    return eventually([&] {
      for (const char* rank : {".0", ".1", ".2", ".3"}) {
        if (!std::filesystem::exists(cluster.file(name + rank))) return false;
      }
      return true;
    });
  };
  ASSERT_TRUE(all_have("ready"));
  EXPECT_EQ(cluster.tutti({"drain", "--now", "n2"}).exit_code, 0);
  ASSERT_TRUE(eventually([&] { return cluster.job(id)["attempt"] == 1 && cluster.state(id) == "running"; }))
      << cluster.job(id);
  EXPECT_TRUE(all_have("saved"));
  EXPECT_EQ(cluster.job(id)["nodes"], json({"n1"}));
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.log(id, 0), "attempt 1 of 2\n");
}

TEST(Jobs, RanksInNumbersThatNoGangCanHaveAreRefused) {
  const TestCluster cluster(1, 2);
  const auto refused = [&](const std::string& ranks) {
    const auto run = cluster.run({"--ranks", ranks, "--gpus-per-rank", "1"}, "true");
    EXPECT_EQ(run.exit_code, 2) << run.err;
    return run.err;
  };
  EXPECT_TRUE(has(refused("4:2"), "--ranks : '4:2' is not a range of ranks")) << refused("4:2");
  EXPECT_TRUE(has(refused("2,4"), "--ranks : 4 comes after 2")) << refused("2,4");
  EXPECT_TRUE(has(refused("8,4"), "can never run here: needs at least 4 of 8 ranks of 1 GPU"))
      << refused("8,4");
  EXPECT_EQ(cluster.run({"--ranks", "8,4,2", "--gpus-per-rank", "1"}, "true").exit_code, 0);
}

// ---- what scripts rely on

TEST(Jobs, JsonHasTheDocumentedKeys) {
  const TestCluster cluster(1, 2);
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--gpus", "1", "--name", "one"}, until(gate, "exit 4"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const std::set<std::string> always{"id",           "name",   "state",   "queue",   "ranks",
                                     "ranks_wanted", "gpus",   "attempt", "nodes",   "devices",
                                     "submitted_at", "reason", "user",    "priority"};
  auto running = always;
  running.insert("started_at");
  json job = cluster.json({"jobs"})[0];
  EXPECT_EQ(keys_of(job), running);
  auto shown = running;
  shown.insert({"command", "rank_states", "workdir", "grace_s", "may_run_on"});
  EXPECT_EQ(keys_of(cluster.job(id)), shown) << "what a list of jobs would only repeat";
  EXPECT_EQ(job["id"], id);
  EXPECT_EQ(job["name"], "one");
  EXPECT_EQ(job["state"], "running");
  EXPECT_EQ(job["queue"], "default");
  EXPECT_EQ(job["ranks"], 1);
  EXPECT_EQ(job["ranks_wanted"], 1);
  EXPECT_EQ(job["gpus"], 1.0);
  EXPECT_EQ(job["nodes"], json({"n1"}));
  EXPECT_EQ(job["devices"], json({{{"node", "n1"}, {"devices", {0}}}}));
  const json node = cluster.node("n1");
  EXPECT_EQ(node["state"], "ready");
  EXPECT_EQ(node["location"], "local/pod1/rack1");
  EXPECT_TRUE(::kill(node["agent_pid"].get<pid_t>(), 0) == 0);
  ASSERT_EQ(node["devices"].size(), 2U);
  EXPECT_EQ(keys_of(node["devices"][0]),
            (std::set<std::string>{"index", "model", "memory_mib", "share_free", "fake"}));
  EXPECT_EQ(node["devices"][0]["share_free"], 0);
  EXPECT_EQ(node["devices"][1]["share_free"], 1000);
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 4);
  EXPECT_EQ(cluster.json({"jobs"}), json::array()) << "finished ones only with --all";
  job = cluster.json({"jobs", "--all"})[0];
  auto finished = running;
  finished.insert({"finished_at", "exit_code"});
  EXPECT_EQ(keys_of(job), finished);
  EXPECT_EQ(job["exit_code"], 4);
  EXPECT_EQ(job["state"], "failed");
}

// ---- PyTorch

constexpr const char* ddp_script = R"(
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group('gloo')
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(rank)
inputs = torch.randn(64, 4)
targets = inputs.sum(1, keepdim=True)
for step in range(50):
    loss = ((model(inputs) - targets) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
others = [torch.zeros_like(mine) for _ in range(world)]
dist.all_gather(others, mine)
assert all(torch.equal(mine, other) for other in others)
assert loss.item() < 0.1, loss.item()
print('trained by', world)
)";

TEST(Jobs, PytorchTrainsOverTwoNodes) {
  if (support::run({"/usr/bin/python3", "-c", "import torch"}).exit_code != 0)
    GTEST_SKIP() << "python3-torch is not installed";
  const TestCluster cluster(2, 2);
  write_text(cluster.file("ddp.py"), ddp_script);
  const auto run =
      cluster.tutti({"run", "--nodes", "2", "--ranks-per-node", "2", "--gpus-per-rank", "1", "--env",
                     "OMP_NUM_THREADS=1", "--", "/usr/bin/python3", cluster.file("ddp.py")});
  EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(has(run.out, "[" + std::to_string(rank) + "] trained by 4\n")) << run.out;
}

// With a pause in it, so that a node can die in the middle.
TEST(Jobs, TheScriptOfTheReadmeGoesOnFromItsCheckpoint) {
  if (support::run({"/usr/bin/python3", "-c", "import torch"}).exit_code != 0)
    GTEST_SKIP() << "python3-torch is not installed";
  const std::string readme = read_text(TUTTI_SOURCE_DIR "/README.md");
  const auto begin = readme.find("# ddp.py");
  ASSERT_NE(begin, std::string::npos);
  std::string script = readme.substr(begin, readme.find("```", begin) - begin);
  const std::string counts = "    step += 1\n";
  ASSERT_NE(script.find(counts), std::string::npos) << script;
  const support::TempFolder shared;
  const std::string reached = shared.path() + "/reached";
  const std::string first = shared.path() + "/first";
  script.replace(script.find(counts), counts.size(),
                 counts + "    if os.environ['TUTTI_ATTEMPT'] == '1' and not os.path.exists('" + first +
                     "'): open('" + first + "', 'w').write(str(step))\n" +
                     "    if os.environ['TUTTI_ATTEMPT'] == '0' and step == 25:\n        open('" + reached +
                     "', 'w'); __import__('time').sleep(600)\n");
  PartsCluster cluster({.data = "",
                        .controller_flags = {},
                        .agent_flags = {"--checkpoints", shared.path() + "/checkpoints"},
                        .gpus = 2});
  ASSERT_TRUE(cluster.start_agent("n1"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  write_text(cluster.file("ddp.py"), script);
  const auto submitted =
      cluster.tutti({"run", "--detach", "--gpus", "4", "--restarts", "10", "--env", "OMP_NUM_THREADS=1", "--",
                     "/usr/bin/python3", cluster.file("ddp.py")});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string job = lines_of(submitted.out).front();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(reached); }));
  cluster.pull_plug("n2");
  ASSERT_TRUE(cluster.node_becomes("n2", "lost"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  EXPECT_EQ(cluster.wait(job), 0) << cluster.log(job, 0);
  EXPECT_EQ(cluster.log(job, 0), "attempt 1 ends at step 50\n");
  EXPECT_EQ(read_text(first), "21");
}

}  // namespace
}  // namespace tutti
