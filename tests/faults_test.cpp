// Faults, made on purpose: programs killed and frozen, a disk that fills up, two controllers at once. What
// the cluster promised before holds after.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "support/cluster.hpp"
#include "support/relay.hpp"
#include "support/small_disk.hpp"

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

// Prints 0, 1, 2, … until the file is there.
std::string count_until(const std::string& file) {
  return "i=0; while [ ! -e '" + file + "' ]; do echo $i; i=$((i+1)); sleep 0.005; done";
}

// The lines are 0, 1, 2, … without a gap, and there are some.
void expect_counted(const std::vector<std::string>& lines, std::size_t at_least) {
  EXPECT_GE(lines.size(), at_least);
  for (std::size_t at = 0; at < lines.size(); ++at) ASSERT_EQ(lines[at], std::to_string(at));
}

bool runs_attempt(const support::Cluster& cluster, const std::string& id, int attempt) {
  return eventually([&] {
    const json job = cluster.job(id);
    return job.value("attempt", -1) == attempt && job.value("state", "") == "running";
  });
}

// ---- the controller dies

TEST(Faults, AFolderIsShippedOverARestartOfTheController) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string work = cluster.file("work");
  std::filesystem::create_directory(work);
  write_text(work + "/words", "shipped");
  cluster.controller().signal(SIGSTOP);
  const auto run = cluster.start({"run", "--no-prefix", "--sync", work, "--", "cat", "words"}, "run");
  ASSERT_TRUE(eventually([&] { return has(read_text(cluster.file("run.err")), "it does not answer yet"); }));
  cluster.kill_controller();
  ASSERT_TRUE(cluster.start_controller());
  EXPECT_EQ(run->wait(), 0) << read_text(cluster.file("run.err"));
  EXPECT_EQ(read_text(cluster.file("run")), "shipped\n");
}

// Submits gangs of one or two ranks, as many as it is told to; each rank leaves one line in a file at its
// end.
class Submitter {
 public:
  Submitter(const support::Cluster& cluster, std::uint64_t seed)
      : cluster_(cluster), prng_(seed), thread_([this] { run(); }) {}
  Submitter(const Submitter&) = delete;
  Submitter& operator=(const Submitter&) = delete;
  ~Submitter() { stop(); }

  void add(int tries) { tries_ += tries; }
  // The ids that a submit has returned.
  const std::vector<std::string>& stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return ids_;
  }

 private:
  void run() {
    while (eventually([this] { return stopping_ || tries_ > 0; }) && !stopping_) {
      --tries_;
      const std::string script = "sleep 0." + std::to_string(prng_.between(0, 4)) +
                                 "; echo $TUTTI_ATTEMPT.$RANK >>" + cluster_.folder() + "/end.$TUTTI_JOB";
      const std::string id = cluster_.submit({"--gpus", std::to_string(prng_.between(1, 2))}, script);
      if (!id.empty()) ids_.push_back(id);
    }
  }

  const support::Cluster& cluster_;
  Prng prng_;
  std::vector<std::string> ids_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> tries_ = 0;
  std::thread thread_;
};

TEST(Faults, AControllerKilledFiftyTimesLosesNothingAndRunsNothingTwice) {
  const std::uint64_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  std::cout << "seed " << seed << std::endl;
  Prng prng(seed);
  PartsCluster cluster({.data = "", .controller_flags = {}, .agent_flags = {}, .gpus = 2});
  ASSERT_TRUE(cluster.start_agent("n1"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  Submitter submitter(cluster, prng.next());
  for (int kill = 0; kill < 50; ++kill) {
    submitter.add(3);
    // The moment is what is random here, not something that is waited for.
    std::this_thread::sleep_for(std::chrono::milliseconds(prng.between(0, 300)));
    cluster.kill_controller();
    ASSERT_TRUE(eventually([&] { return cluster.start_controller(); }))
        << read_text(cluster.file("controller.err"));
  }
  const auto ids = submitter.stop();
  EXPECT_GE(ids.size(), 20U);
  ASSERT_TRUE(eventually([&] { return cluster.json({"jobs"}) == json::array(); })) << cluster.json({"jobs"});
  std::set<std::string> known;
  const json jobs = cluster.json({"jobs", "--all", "--limit", "100000"});
  for (const auto& job : jobs) {
    const std::string id = job["id"];
    known.insert(id);
    EXPECT_EQ(job["state"], "succeeded") << job;
    EXPECT_EQ(job["attempt"], 0) << job;
    auto ends = lines_of(read_text(cluster.file("end." + id)));
    std::sort(ends.begin(), ends.end());
    const auto expected =
        job["ranks"] == 1 ? std::vector<std::string>{"0.0"} : std::vector<std::string>{"0.0", "0.1"};
    EXPECT_EQ(ends, expected) << job;
  }
  for (const auto& id : ids)
    EXPECT_TRUE(known.contains(id)) << "job " << id << " was promised and is forgotten";
}

TEST(Faults, AFollowerSeesTheWholeLogThroughControllerRestarts) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const auto run = cluster.start({"run", "--no-prefix", "--", "sh", "-c", count_until(gate)}, "out");
  const auto seen = [&] { return lines_of(read_text(cluster.file("out"))).size(); };
  for (int kill = 0; kill < 3; ++kill) {
    const std::size_t before = seen();
    ASSERT_TRUE(eventually([&] { return seen() > before + 20; }));
    cluster.kill_controller();
    ASSERT_TRUE(eventually([&] { return cluster.start_controller(); }));
  }
  write_text(gate, "");
  EXPECT_EQ(run->wait(), 0) << read_text(cluster.file("out"));
  expect_counted(lines_of(read_text(cluster.file("out"))), 60);
  EXPECT_EQ(cluster.job("1")["attempt"], 0);
}

// The connections break, and cannot be made again until it is back. tests/CMakeLists.txt lets this test start
// first.
TEST(Faults, AControllerAwayForLongerThanEveryTimeoutIsNotNoticedByJobs) {
  const TestCluster cluster(2, 2);
  const std::string gate = cluster.file("gate");
  const std::string early_gate = cluster.file("early-gate");
  // Each rank tells who it is and how far it is, and goes on when it is told to.
  const std::string id = cluster.submit(
      {"--nodes", "2", "--ranks-per-node", "2", "--gpus-per-rank", "1", "--output", cluster.file("log.%t")},
      "i=0; while [ ! -e '" + gate +
          "' ]; do echo $i $$ $TUTTI_ATTEMPT; i=$((i+1)); sleep 0.2; done; echo end $$ $TUTTI_ATTEMPT");
  const std::string early = cluster.submit({"--ranks", "2", "--env", "MARK=" + early_gate},
                                           until(early_gate, "echo last words; exit 8"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  ASSERT_TRUE(cluster.becomes(early, "running"));
  const auto written = [&](int rank) {
    return lines_of(read_text(cluster.file("log." + std::to_string(rank)))).size();
  };

  ASSERT_EQ(::kill(cluster.controller_pid(), SIGSTOP), 0);
  std::vector<std::size_t> before;
  for (int rank = 0; rank < 4; ++rank) before.push_back(written(rank));
  write_text(early_gate, "");
  EXPECT_TRUE(eventually([&] { return support::processes_naming("MARK=" + early_gate).empty(); }))
      << "a job ends without the controller";
  for (const char* node : {"n1", "n2"}) {
    const auto gave_up = [&] {
      const std::string log = read_text(cluster.home() + "/logs/node-" + node + ".log");
      const std::size_t lost = log.find("lost the controller");
      return lost != std::string::npos && log.find("cannot join", lost) != std::string::npos;
    };
    EXPECT_TRUE(eventually(gave_up, 5min)) << read_text(cluster.home() + "/logs/node-" + node + ".log");
  }
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(eventually([&] { return written(rank) > before[static_cast<std::size_t>(rank)] + 30; }))
        << "rank " << rank << " stood still";
  const std::string back_at = format_instant(Instant(std::chrono::system_clock::now().time_since_epoch()));
  ASSERT_EQ(::kill(cluster.controller_pid(), SIGCONT), 0);

  EXPECT_EQ(cluster.wait(early), 8) << cluster.job(early);
  EXPECT_EQ(cluster.job(early)["attempt"], 0);
  EXPECT_LT(cluster.job(early).value("finished_at", "~"), back_at) << "that is when it was heard of";
  EXPECT_TRUE(eventually([&] { return cluster.log(early, 0) == "last words\n"; }))
      << "when its node has joined again";
  EXPECT_TRUE(cluster.node_becomes("n1", "ready"));
  EXPECT_TRUE(cluster.node_becomes("n2", "ready"));
  EXPECT_EQ(cluster.state(id), "running");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
  for (int rank = 0; rank < 4; ++rank) {
    const auto lines = lines_of(cluster.log(id, rank));
    ASSERT_GT(lines.size(), 30U);
    const std::string who = lines.front().substr(lines.front().find(' '));
    EXPECT_TRUE(who.ends_with(" 0")) << who;
    for (std::size_t at = 0; at + 1 < lines.size(); ++at) ASSERT_EQ(lines[at], std::to_string(at) + who);
    EXPECT_EQ(lines.back(), "end" + who);
  }
  EXPECT_FALSE(has(read_text(cluster.home() + "/logs/controller.log"), "lost"));
}

TEST(Faults, TwoControllersOnOneFolder) {
  const TestCluster cluster;
  const auto second =
      cluster.tutti({"controller", "--data", cluster.home() + "/controller", "--listen", "127.0.0.1:0"});
  EXPECT_NE(second.exit_code, 0);
  EXPECT_TRUE(has(second.err, "another controller (pid " + std::to_string(cluster.controller_pid()) + ")"))
      << second.err;
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
}

TEST(Faults, UpAfterDownKnowsWhatWasBefore) {
  const TestCluster cluster(1, 2);
  EXPECT_EQ(cluster.run({}, "exit 3").exit_code, 3);
  ASSERT_EQ(cluster.tutti({"down"}).exit_code, 0);
  ASSERT_EQ(cluster.tutti({"up", "--gpus", "2"}).exit_code, 0);
  EXPECT_EQ(cluster.job("1")["exit_code"], 3);
  EXPECT_EQ(cluster.submit({}, "true"), "2") << "an id is never given twice";
  EXPECT_EQ(cluster.wait("2"), 0);
}

// ---- an agent dies

TEST(Faults, RanksAndTheirLogsOutliveTheirAgent) {
  const TestCluster cluster(2, 1);
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--nodes", "2", "--gpus-per-rank", "1"}, count_until(gate));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const auto follow = cluster.start({"logs", id, "--follow", "--rank", "0", "--no-prefix"}, "out");
  for (int kill = 0; kill < 3; ++kill) {
    const std::size_t before = lines_of(cluster.log(id, 0)).size();
    ASSERT_TRUE(eventually([&] { return lines_of(cluster.log(id, 0)).size() > before; }));
    // Ranks know their folder too; what they start comes and goes.
    auto shims = support::processes_naming(cluster.home() + "/nodes/n1/ranks/");
    std::erase_if(shims, [](pid_t pid) {
      const std::string command = read_text("/proc/" + std::to_string(pid) + "/cmdline");
      return command.find(std::string("\0shim\0", 6)) == std::string::npos;
    });
    EXPECT_EQ(shims.size(), 1U);
    ASSERT_EQ(::kill(cluster.agent_pid("n1"), SIGKILL), 0);
    ASSERT_TRUE(eventually([&] { return cluster.tutti({"local", "start-node", "n1"}).exit_code == 0; }));
    for (const pid_t pid : shims) EXPECT_EQ(::kill(pid, 0), 0) << "a rank went with its agent";
    EXPECT_TRUE(eventually([&] { return lines_of(cluster.log(id, 0)).size() > before + 20; }));
  }
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
  expect_counted(lines_of(cluster.log(id, 0)), 60);
  expect_counted(lines_of(cluster.log(id, 1)), 60);
  EXPECT_EQ(follow->wait(), 0);
  EXPECT_EQ(read_text(cluster.file("out")), cluster.log(id, 0)) << "who follows sees all of it too";
}

TEST(Faults, AnEndWhileTheAgentIsAwayIsNotForgotten) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({}, until(gate, "exit 9"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const pid_t agent = cluster.agent_pid("n1");
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  write_text(gate, "");
  ASSERT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); }));
  ASSERT_TRUE(eventually([&] { return cluster.tutti({"local", "start-node", "n1"}).exit_code == 0; }));
  EXPECT_EQ(cluster.wait(id), 9);
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
}

// An agent that dies while it starts ranks does not know whether their shims live. Either way each attempt
// runs at most once, and never beside the next.
TEST(Faults, AnAgentKilledWhileItStartsRanksStartsNoneTwice) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Prng prng(seed);
  int while_it_ran = 0;
  for (int kill = 0; kill < 20; ++kill) {
    const std::string alone = cluster.file("alone." + std::to_string(kill));
    // mkdir is atomic: whoever finds the folder there is not alone.
    const std::string id =
        cluster.submit({"--restarts", "100"}, "mkdir " + alone + " || exit 66; sleep 0.2; rmdir " + alone);
    std::this_thread::sleep_for(std::chrono::microseconds(prng.between(0, 8000)));
    cluster.agent("n1").signal(SIGKILL);
    cluster.agent("n1").wait();
    // Without an agent nothing ends: a job that has not is one that the kill met.
    while_it_ran += cluster.state(id) == "succeeded" ? 0 : 1;
    ASSERT_TRUE(cluster.start_agent("n1"));
    EXPECT_EQ(cluster.wait(id), 0) << cluster.job(id);
  }
  EXPECT_GE(while_it_ran, 10) << "kills that came too late prove nothing";
}

// Which shim a rank has its folder tells, and the rank can take that away.
TEST(Faults, ARankThatHidesItsShimIsAdoptedAllTheSame) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string hidden = cluster.file("hidden");
  const std::string gate = cluster.file("gate");
  const std::string id =
      cluster.submit({}, "rm $(dirname $TUTTI_PROGRESS_FILE)/shim; touch " + hidden + "; " + until(gate));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(hidden); }));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0) << "the agent has looked for it by then";
  EXPECT_EQ(cluster.state(id), "running");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.job(id)["attempt"], 0) << "it ran once";
}

// Between the first trace of a rank on the disk and its shim.
TEST(Faults, AStartThatWasCutShortWithItsAgentUsesUpNoRestart) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  cluster.agent("n1").signal(SIGSTOP);
  const std::string id = cluster.submit({"--restarts", "0"}, "true");
  ASSERT_TRUE(cluster.becomes(id, "starting"));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  std::filesystem::create_directories(cluster.home() + "/nodes/n1/ranks/" + id + ".0.0");
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.wait(id), 0) << cluster.job(id);
  EXPECT_EQ(cluster.job(id)["attempt"], 1);
  EXPECT_TRUE(has(read_text(cluster.file("agent-n1.err")), "has not ended in order"));
}

TEST(Faults, AKilledShimTakesItsRankAlong) {
  const TestCluster cluster;
  const std::string id = cluster.submit({}, "[ $TUTTI_ATTEMPT = 1 ] || exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const std::string note = cluster.home() + "/nodes/n1/ranks/" + id + ".0.0/shim";
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(note); }));
  ASSERT_EQ(::kill(std::stoi(read_text(note)), SIGKILL), 0);
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.job(id)["attempt"], 1);
  EXPECT_TRUE(cluster.ranks_on("n1").empty());
}

// ---- a node dies

TEST(Faults, AGangMovesFromADeadNode) {
  const TestCluster cluster(3, 1);
  const std::string gate = cluster.file("gate");
  const std::string id =
      cluster.submit({"--nodes", "2", "--gpus-per-rank", "1", "--grace", "200ms"},
                     "(setsid sleep 1000 &); " + until(gate, "echo attempt $TUTTI_ATTEMPT"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const std::string dead = cluster.job(id)["nodes"][0];
  ASSERT_TRUE(eventually([&] { return cluster.ranks_on(dead).size() >= 3; })) << "shim, rank and its child";
  ASSERT_EQ(cluster.tutti({"local", "kill-node", dead}).exit_code, 0);
  EXPECT_TRUE(cluster.ranks_on(dead).empty()) << "a power cut leaves nothing running";
  ASSERT_TRUE(runs_attempt(cluster, id, 1));
  const json job = cluster.job(id);
  EXPECT_EQ(std::count(job["nodes"].begin(), job["nodes"].end(), dead), 0);
  EXPECT_EQ(cluster.node(dead)["state"], "lost");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.log(id, 1), "attempt 1\n");
  ASSERT_EQ(cluster.tutti({"local", "start-node", dead}).exit_code, 0);
  EXPECT_EQ(cluster.node(dead)["state"], "ready");
  EXPECT_EQ(cluster.run({"--nodes", "3", "--gpus-per-rank", "1"}, "true").exit_code, 0);
}

TEST(Faults, AnElasticGangGoesOnWithFewerRanks) {
  const TestCluster cluster(4, 2);
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--ranks", "8,4", "--gpus-per-rank", "1", "--grace", "200ms"},
                                        until(gate, "echo WORLD_SIZE=$WORLD_SIZE of $TUTTI_RANKS_WANTED"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  EXPECT_EQ(cluster.job(id)["ranks"], 8);
  const std::string dead = cluster.job(id)["nodes"][3];
  ASSERT_EQ(cluster.tutti({"local", "kill-node", dead}).exit_code, 0);
  ASSERT_TRUE(runs_attempt(cluster, id, 1)) << "it does not wait for the dead node";
  EXPECT_EQ(cluster.node(dead)["state"], "lost");
  ASSERT_EQ(cluster.tutti({"local", "start-node", dead}).exit_code, 0);
  const json job = cluster.job(id);
  EXPECT_EQ(job["attempt"], 1) << "room for more ranks disturbs nobody";
  EXPECT_EQ(job["state"], "running");
  EXPECT_EQ(job["ranks"], 4);
  EXPECT_EQ(job["ranks_wanted"], 8);
  EXPECT_EQ(job["gpus"], 4.0);
  EXPECT_EQ(job["nodes"].size(), 2U);
  EXPECT_EQ(job["rank_states"].size(), 4U);
  EXPECT_TRUE(has(cluster.tutti({"show", id}).out, "ranks 4 of 8, 4 GPUs"))
      << cluster.tutti({"show", id}).out;
  EXPECT_TRUE(has(cluster.tutti({"jobs"}).out, "4 of 8")) << cluster.tutti({"jobs"}).out;
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.state(id), "succeeded");
  EXPECT_EQ(cluster.job(id)["attempt"], 1);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(cluster.log(id, rank), "WORLD_SIZE=4 of 8\n");
  EXPECT_EQ(cluster.log(id, 4), "");
}

TEST(Faults, AGangThatLosesItsNodeTooOftenFails) {
  const TestCluster cluster(2, 1);
  const std::string id = cluster.submit({"--gpus", "1", "--restarts", "0"}, "sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const std::string dead = cluster.job(id)["nodes"][0];
  ASSERT_EQ(cluster.tutti({"local", "kill-node", dead}).exit_code, 0);
  EXPECT_NE(cluster.wait(id), 0);
  EXPECT_EQ(cluster.state(id), "failed");
  EXPECT_TRUE(has(cluster.job(id)["reason"], "node " + dead + " was lost")) << cluster.job(id)["reason"];
}

// Stops every process of the node, and those that were started meanwhile.
std::vector<pid_t> freeze(const TestCluster& cluster, const std::string& node) {
  std::vector<pid_t> frozen{cluster.agent_pid(node)};
  ::kill(frozen.front(), SIGSTOP);
  for (std::size_t known = 0; known != frozen.size();) {
    known = frozen.size();
    for (const pid_t pid : cluster.ranks_on(node)) {
      if (std::find(frozen.begin(), frozen.end(), pid) != frozen.end()) continue;
      ::kill(pid, SIGSTOP);
      frozen.push_back(pid);
    }
  }
  return frozen;
}

TEST(Faults, AFrozenNodeThatThawsDisturbsNobody) {
  const TestCluster cluster(3, 1);
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({"--nodes", "2", "--gpus-per-rank", "1", "--grace", "200ms"},
                                        until(gate, "echo attempt $TUTTI_ATTEMPT"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const std::string cold = cluster.job(id)["nodes"][1];
  ASSERT_TRUE(eventually([&] { return cluster.ranks_on(cold).size() >= 2; })) << "shim and rank";
  const auto frozen = freeze(cluster, cold);
  ASSERT_GE(frozen.size(), 3U) << "agent, shim and rank";
  ASSERT_TRUE(cluster.node_becomes(cold, "lost"));
  ASSERT_TRUE(runs_attempt(cluster, id, 1));
  EXPECT_FALSE(cluster.ranks_on(cold).empty()) << "frozen, not gone";
  for (const pid_t pid : frozen) ::kill(pid, SIGCONT);
  ASSERT_TRUE(cluster.node_becomes(cold, "ready"));
  ASSERT_TRUE(eventually([&] { return cluster.ranks_on(cold).empty(); })) << "the old attempt is ended";
  EXPECT_EQ(cluster.state(id), "running");
  EXPECT_EQ(cluster.job(id)["attempt"], 1);
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.log(id, 0), "attempt 1\n");
  EXPECT_EQ(cluster.run({"--nodes", "3", "--gpus-per-rank", "1"}, "true").exit_code, 0);
}

// ---- the network breaks

TEST(Faults, BehindABrokenNetworkOldRanksRunUntilTheNodeIsHeardAgain) {
  PartsCluster cluster({.data = "", .controller_flags = {}, .agent_flags = {}, .gpus = 1});
  support::Relay relay(cluster.port());
  ASSERT_TRUE(cluster.start_agent("far", relay.address()));
  const std::string gate = cluster.file("gate");
  const std::string id =
      cluster.submit({"--gpus", "1", "--grace", "200ms"}, until(gate, "echo attempt $TUTTI_ATTEMPT"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  ASSERT_TRUE(eventually([&] { return cluster.ranks_on("far").size() >= 2; })) << "shim and rank";
  ASSERT_TRUE(cluster.start_agent("near"));

  relay.cut();
  ASSERT_TRUE(cluster.node_becomes("far", "lost"));
  ASSERT_TRUE(runs_attempt(cluster, id, 1));
  EXPECT_EQ(cluster.job(id)["nodes"], json({"near"}));
  EXPECT_GE(cluster.ranks_on("far").size(), 2U) << "nobody could tell them to end";

  relay.mend();
  ASSERT_TRUE(cluster.node_becomes("far", "ready"));
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("far").empty(); })) << "the old attempt is ended";
  EXPECT_TRUE(runs_attempt(cluster, id, 1)) << "what the old one says changes nothing";
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.log(id, 0), "attempt 1\n");
  EXPECT_EQ(cluster.run({"--nodes", "2", "--gpus-per-rank", "1"}, "true").exit_code, 0);
}

// ---- the disk fills up

TEST(Faults, AFullDiskRefusesWorkAndLosesNone) {
  const support::TempFolder mount_point;
  const support::SmallDisk disk(mount_point.path() + "/disk");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  PartsCluster cluster(
      {.data = mount_point.path() + "/disk/controller", .controller_flags = {}, .agent_flags = {}});
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string ends_meanwhile = cluster.submit({}, until(gate, "exit 5"));
  const std::string goes_on = cluster.submit({}, until(cluster.file("later")));
  ASSERT_TRUE(cluster.becomes(ends_meanwhile, "running"));
  ASSERT_TRUE(cluster.becomes(goes_on, "running"));
  disk.fill();
  support::Finished refused;
  // What is already reserved may still take a few.
  ASSERT_TRUE(eventually([&] {
    refused = cluster.run({"--detach"}, "true");
    return refused.exit_code != 0;
  }));
  EXPECT_TRUE(has(refused.err, "disk is full")) << refused.err;
  EXPECT_EQ(refused.out, "");
  const auto status = cluster.tutti({"status"});
  EXPECT_TRUE(has(status.out, "store  cannot be written: the disk is full")) << status.out << status.err;
  write_text(gate, "");
  // Longer than a lease: that nothing can be stored is no reason to give up on nodes.
  std::this_thread::sleep_for(4s);
  EXPECT_EQ(cluster.state(goes_on), "running");
  EXPECT_NE(cluster.run({"--detach"}, "true").exit_code, 0) << "it does not flap";
  disk.empty();
  std::string id;
  EXPECT_TRUE(eventually([&] { return !(id = cluster.submit({}, "true")).empty(); }));
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.wait(ends_meanwhile), 5);
  EXPECT_EQ(cluster.job(ends_meanwhile)["attempt"], 0);
  EXPECT_FALSE(has(cluster.tutti({"status"}).out, "cannot be written"));
  write_text(cluster.file("later"), "");
  EXPECT_EQ(cluster.wait(goes_on), 0);
  EXPECT_EQ(cluster.job(goes_on)["attempt"], 0);
}

// ---- nobody reads what a program says

// A pipe in the place of a file, and full: whoever writes into it waits, as behind a `tee` that was stopped.
class FullPipe {
 public:
  explicit FullPipe(const std::string& path) {
    std::filesystem::remove(path);
    if (::mkfifo(path.c_str(), 0600) == 0) file_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    while (::write(file_, "x", 1) == 1) continue;
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  ~FullPipe() { ::close(file_); }

 private:
  int file_ = -1;
};

TEST(Faults, ALogThatNobodyReadsHoldsUpNeitherControllerNorAgents) {
  PartsCluster cluster;
  const FullPipe of_agent(cluster.file("agent-n1.err"));
  ASSERT_TRUE(cluster.start_agent("n1"));
  cluster.kill_controller();
  const FullPipe of_controller(cluster.file("controller.err"));
  ASSERT_TRUE(cluster.start_controller({"--log-level", "debug"}));
  EXPECT_EQ(cluster.wait(cluster.submit({}, "exit 3")), 3);
  cluster.agent("n1").signal(SIGTERM);
  EXPECT_EQ(cluster.agent("n1").wait(), 0);
  cluster.controller().signal(SIGTERM);
  EXPECT_EQ(cluster.controller().wait(), 0);
}

}  // namespace
}  // namespace tutti
