// Jobs as a user meets them: what ranks see, what ends them, what is printed and what scripts can rely on.
#include <signal.h>

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
  std::set<std::string> secrets;
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
    secrets.insert(env["TUTTI_WORLD_SECRET"]);
  }
  ASSERT_EQ(secrets.size(), 1U);
  EXPECT_EQ(secrets.begin()->size(), 64U);
  EXPECT_EQ(cluster.job(id).dump().find(*secrets.begin()), std::string::npos) << "it is shown to nobody else";
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

// ---- why they wait

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
  shown.insert({"command", "rank_states", "workdir", "grace_s", "may_run_on", "secrets"});
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

}  // namespace
}  // namespace tutti
