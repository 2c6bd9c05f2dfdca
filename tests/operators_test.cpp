// What people who run jobs and clusters want to know and to be able to do: why a job waits, whose answer is
// missing, what was removed, and that a planned stop costs nothing.
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
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

// ---- ending

TEST(Operators, ACancelSaysHowLongItMayTakeAndNowIsAtOnce) {
  const TestCluster cluster;
  const std::string started = cluster.file("started");
  const std::string id =
      cluster.submit({"--grace", "1d"}, "trap '' TERM; echo >" + started + "; while :; do sleep 0.1; done");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(started); }));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  const auto asked = cluster.tutti({"cancel", id});
  EXPECT_EQ(asked.exit_code, 0);
  EXPECT_TRUE(has(asked.err, "job " + id + " is asked to end and may take 1d; `tutti cancel --now " + id))
      << asked.err;
  EXPECT_EQ(cluster.state(id), "running");
  EXPECT_TRUE(has(cluster.tutti({"jobs"}).out, " ending ")) << cluster.tutti({"jobs"}).out;
  EXPECT_TRUE(has(cluster.tutti({"show", id}).out, "  ending\n")) << cluster.tutti({"show", id}).out;
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_NE(cluster.wait(id), 0);
  EXPECT_EQ(cluster.state(id), "cancelled");
  const std::string waiting = cluster.submit({"--after", cluster.submit({}, "sleep 600")}, "true");
  EXPECT_EQ(cluster.tutti({"cancel", waiting}).err, "") << "it is over already";
}

TEST(Operators, APlannedStopUsesUpNoRestart) {
  const TestCluster cluster(2, 2);
  const std::string started = cluster.file("started");
  // The second rank fails when it misses the first, as ranks of a real gang do.
  const std::string script = "[ $TUTTI_ATTEMPT = 1 ] && exit 0; echo >" + started +
                             "$RANK; [ $RANK = 0 ] && exec sleep 1000; p=" + started +
                             "; until [ -e $p.pid ]; do sleep 0.01; done; while kill -0 $(cat $p.pid) "
                             "2>/dev/null; do sleep 0.01; done; exit 3";
  const std::string id = cluster.submit({"--nodes", "2", "--restarts", "0"},
                                        "[ $RANK = 0 ] && echo $$ >" + started + ".tmp && mv " + started +
                                            ".tmp " + started + ".pid; " + script);
  const std::string alone = cluster.submit({"--restarts", "0"}, "[ $TUTTI_ATTEMPT = 1 ] || exec sleep 1000");
  ASSERT_TRUE(eventually(
      [&] { return std::filesystem::exists(started + "0") && std::filesystem::exists(started + "1"); }));
  ASSERT_TRUE(cluster.becomes(alone, "running"));
  EXPECT_EQ(cluster.tutti({"down"}).exit_code, 0);
  EXPECT_EQ(cluster.tutti({"up", "--nodes", "2", "--gpus", "2"}).exit_code, 0);
  EXPECT_EQ(cluster.wait(id), 0) << cluster.tutti({"show", id}).out;
  EXPECT_EQ(cluster.wait(alone), 0) << cluster.tutti({"show", alone}).out;
  EXPECT_EQ(cluster.job(id)["attempt"], 1);
}

TEST(Operators, ThePartsSayWhatHasEndedThemAndRanksRunOn) {
  ::signal(SIGHUP, SIG_DFL);  // whoever runs the tests may have it ignored, and so would the parts
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id = cluster.submit({}, "sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  // A terminal that is closed.
  cluster.agent("n1").signal(SIGHUP);
  EXPECT_EQ(cluster.agent("n1").wait(), 0);
  EXPECT_TRUE(has(read_text(cluster.file("agent-n1.err")), "this agent ends: Hangup; ranks run on"));
  cluster.controller().signal(SIGTERM);
  EXPECT_EQ(cluster.controller().wait(), 0);
  EXPECT_TRUE(has(read_text(cluster.file("controller.err")), "this controller ends: Terminated"));
  ASSERT_TRUE(cluster.start_controller());
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.job(id).value("attempt", -1), 0);
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
}

// As `rm` and a copy over a slow network do: half of the new version is there for a while.
TEST(Operators, AnAgentWhoseProgramIsReplacedStartsRanksAllTheSame) {
  PartsCluster cluster;
  const std::string program = cluster.file("tutti");
  std::filesystem::copy_file(support::tutti_program, program);
  support::Process agent({program, "agent", "--isolation", "none", "--controller", cluster.address(),
                          "--join-token-file", cluster.data() + "/join.token", "--name", "n1", "--data",
                          cluster.home() + "/nodes/n1", "--fake-gpus", "8xH100"},
                         cluster.file("agent"), cluster.env());
  ASSERT_TRUE(cluster.node_becomes("n1", "ready"));
  std::filesystem::remove(program);
  std::filesystem::copy_file(support::tutti_program, program);
  std::filesystem::resize_file(program, std::filesystem::file_size(program) / 2);
  EXPECT_EQ(cluster.run({"--no-prefix"}, "echo ran").out, "ran\n");
  std::filesystem::remove(program);
  std::filesystem::copy_file("/bin/true", program);
  EXPECT_EQ(cluster.run({"--no-prefix"}, "echo ran").out, "ran\n");
  // The next agent finds the shims of such a one.
  const std::string id = cluster.submit({}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  agent.signal(SIGKILL);
  agent.wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); }));
  EXPECT_EQ(cluster.job(id).value("attempt", -1), 0);
}

TEST(Operators, WhoIsToldToGoLeavesTheJobAndSaysSo) {
  const TestCluster cluster;
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string name = "out" + std::to_string(signal);
    const auto run = cluster.start({"run", "--", "sh", "-c", "echo words; exec sleep 1000"}, name);
    ASSERT_TRUE(eventually([&] { return !read_text(cluster.file(name)).empty(); }));
    run->signal(signal);
    EXPECT_EQ(run->wait(), 130);
    const std::string id = cluster.json({"jobs"})[0]["id"];
    EXPECT_TRUE(has(read_text(cluster.file(name + ".err")),
                    "job " + id + " : goes on; `tutti cancel " + id + "` ends it"));
    EXPECT_EQ(cluster.state(id), "running");
    EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
    EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  }
}

// ---- knowing

TEST(Operators, LogsThatWereRemovedAreSaidToBe) {
  const TestCluster cluster;
  const std::string id = cluster.submit({"--ranks", "2"}, "echo words");
  ASSERT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.tutti({"logs", id}).exit_code, 0);
  const std::string ranks = cluster.home() + "/nodes/n1/ranks/";
  std::filesystem::remove_all(ranks + id + ".0.0");
  const auto half = cluster.tutti({"logs", id});
  EXPECT_EQ(half.exit_code, 1);
  EXPECT_EQ(half.out, "[1] words\n");
  EXPECT_TRUE(has(half.err, "node n1: 1 of 2 logs are not here any more")) << half.err;
  EXPECT_EQ(cluster.tutti({"logs", id, "--rank", "1"}).exit_code, 0);
  std::filesystem::remove_all(ranks + id + ".0.1");
  const auto none = cluster.tutti({"logs", id, "--rank", "1"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(has(none.err, "the log is not here any more")) << none.err;
}

TEST(Operators, AControllerThatDoesNotAnswerIsNamed) {
  const TestCluster cluster;
  const std::string id = cluster.submit({}, "echo words");
  ASSERT_EQ(cluster.wait(id), 0);
  const std::string address = lines_of(read_text(cluster.home() + "/address")).front();
  ASSERT_EQ(::kill(cluster.controller_pid(), SIGSTOP), 0);
  const auto status = cluster.start({"status"}, "status");
  const auto logs = cluster.start({"logs", id}, "logs");
  const auto says = [&](const std::string& name, const std::string& what) {
    return eventually([&] { return has(read_text(cluster.file(name + ".err")), address + " : " + what); });
  };
  EXPECT_TRUE(says("status", "it does not answer yet; waiting for it"))
      << read_text(cluster.file("status.err"));
  EXPECT_TRUE(says("logs", "it does not answer; waiting for it")) << read_text(cluster.file("logs.err"));
  ASSERT_EQ(::kill(cluster.controller_pid(), SIGCONT), 0);
  EXPECT_EQ(status->wait(), 0);
  EXPECT_EQ(logs->wait(), 0);
}

TEST(Operators, WhoRunsAJobThatWaitsHearsWhy) {
  const TestCluster cluster(1, 1);
  const std::string first = cluster.submit({"--gpus", "1"}, "sleep 600");
  ASSERT_TRUE(cluster.becomes(first, "running"));
  const auto run = cluster.start({"run", "--gpus", "1", "--", "true"}, "out");
  EXPECT_TRUE(eventually([&] { return has(read_text(cluster.file("out.err")), "job 2 : waits: "); }));
  EXPECT_EQ(cluster.tutti({"cancel", "--now", first}).exit_code, 0);
  EXPECT_EQ(run->wait(), 0);
  EXPECT_EQ(lines_of(read_text(cluster.file("out.err"))).size(), 1U) << read_text(cluster.file("out.err"));
}

TEST(Operators, ALostNodeHasNothingFreeAndTheLogTellsOfIt) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  cluster.pull_plug("n2");
  ASSERT_TRUE(cluster.node_becomes("n2", "lost"));
  const json node = cluster.node("n2");
  EXPECT_EQ(node["devices"][0]["share_free"], 0);
  EXPECT_EQ(node["cpus_free"], 0);
  EXPECT_TRUE(has(cluster.tutti({"nodes"}).out, "0/8")) << cluster.tutti({"nodes"}).out;
  EXPECT_TRUE(eventually([&] { return has(read_text(cluster.file("controller.err")), "node n2 is lost"); }));
}

TEST(Operators, JobsAreFoundByWhatTheyAre) {
  const TestCluster cluster;
  const std::string gate = cluster.file("gate");
  ASSERT_EQ(cluster.tutti({"queues", "set", "research"}).exit_code, 0);
  ASSERT_EQ(cluster.tutti({"queues", "set", "research/vision"}).exit_code, 0);
  const std::string failed = cluster.submit({"--name", "alpha one"}, "exit 3");
  const std::string running = cluster.submit({"--name", "beta", "--queue", "research/vision"}, until(gate));
  const std::string array = cluster.submit({"--name", "gamma", "--array", "0-1"}, until(gate));
  ASSERT_EQ(cluster.wait(failed), 3);
  const auto found = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "jobs");
    std::string ids;
    for (const auto& job : cluster.json(flags)) ids += job["id"].get<std::string>() + " ";
    return ids;
  };
  EXPECT_EQ(found({"--state", "failed"}), failed + " ");
  EXPECT_EQ(found({"--queue", "research"}), running + " ");
  EXPECT_EQ(found({"--name", "alpha", "--all"}), failed + " ");
  EXPECT_EQ(found({"--name", "alpha"}), "");
  EXPECT_EQ(found({"--user", "nobody else"}), "");
  EXPECT_EQ(found({"--name", "gamma", "--limit", "1"}), std::to_string(std::stoi(array) + 1) + " ");
  const auto wrong = cluster.tutti({"jobs", "--state", "runing"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(has(wrong.err, "did you mean 'running'?")) << wrong.err;
  const std::string table = cluster.tutti({"jobs", "--all"}).out;
  EXPECT_TRUE(has(lines_of(table).front(), "ARRAY")) << table;
  EXPECT_TRUE(has(lines_of(table).front(), "TIME")) << table;
  EXPECT_TRUE(has(table, array + "[1]")) << table;
  write_text(gate, "");
  EXPECT_EQ(cluster.tutti({"wait", running, array}).exit_code, 0);
}

TEST(Operators, OfAnArrayThatFailsOneLineIsSaid) {
  const TestCluster cluster;
  const std::string id = cluster.submit({"--array", "0-3"}, "exit $((TUTTI_ARRAY_INDEX % 2 * 3))");
  const auto waited = cluster.tutti({"wait", "--array", id});
  EXPECT_EQ(waited.exit_code, 3);
  ASSERT_EQ(lines_of(waited.err).size(), 1U) << waited.err;
  EXPECT_TRUE(has(waited.err, "array " + id + " : 2 succeeded, 2 failed; job ")) << waited.err;
  const auto each = cluster.tutti({"wait", "--array", "--verbose", id});
  EXPECT_EQ(lines_of(each.err).size(), 4U) << each.err;
}

// What a command shows on a terminal of 110 columns.
std::string shown_on_a_terminal(const TestCluster& cluster, const std::vector<std::string>& words) {
  const winsize size{.ws_row = 25, .ws_col = 110, .ws_xpixel = 0, .ws_ypixel = 0};
  std::string program = "tutti";
  std::vector<std::string> copies = words;
  std::vector<char*> arguments{program.data()};
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TUTTI_HOME", cluster.home().c_str(), 1);
    ::execv(support::tutti_program.c_str(), arguments.data());
    ::_exit(127);
  }
  std::string shown;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(terminal, buffer.data(), buffer.size())) > 0;)
    shown.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return shown;
}

TEST(Operators, AListIsAsWideAsTheTerminal) {
  const TestCluster cluster;
  ASSERT_EQ(cluster.tutti({"run", "--name", "x", "--", "/" + std::string(200, 'x')}).exit_code, 127);
  const std::string whole = cluster.tutti({"jobs", "--all"}).out;
  EXPECT_TRUE(has(whole, "exited with 127; cannot run '/xxx")) << whole;
  const std::string shown = shown_on_a_terminal(cluster, {"jobs", "--all"});
  ASSERT_EQ(lines_of(shown).size(), 2U) << shown;
  EXPECT_EQ(lines_of(shown)[1].size(), 111U) << "with the return: " << shown;
  EXPECT_TRUE(has(shown, "...")) << shown;
}

TEST(Operators, AListHasTheReasonOfAJobWithoutItsLog) {
  const TestCluster cluster;
  ASSERT_EQ(cluster.run({}, "echo said; exit 3").exit_code, 3);
  const std::string list = cluster.tutti({"jobs", "--all"}).out;
  EXPECT_TRUE(has(list, "exited with 3")) << list;
  EXPECT_FALSE(has(list, "last lines of its log")) << list;
  const std::string whole = cluster.tutti({"show", "1"}).out;
  EXPECT_TRUE(has(whole, "exited with 3; last lines of its log:")) << whole;
}

TEST(Operators, AnArchiveTellsHowFarItIs) {
  const TestCluster cluster;
  for (int at = 0; at < 3; ++at) ASSERT_EQ(cluster.run({}, "true").exit_code, 0);
  const std::string file = cluster.file("jobs.jsonl");
  const std::string shown =
      shown_on_a_terminal(cluster, {"jobs", "archive", "--older-than", "0s", "--out", file});
  EXPECT_TRUE(has(shown, "archiving [")) << shown;
  EXPECT_TRUE(has(shown, "0 of 2")) << "the newest stays: " << shown;
  EXPECT_EQ(lines_of(read_text(file)).size(), 2U);
}

TEST(Operators, AnArchiveHasWholeLinesAlsoOnAFullDisk) {
  const TestCluster cluster;
  const support::SmallDisk disk(cluster.file("disk"), 1);
  if (!disk.mounted()) GTEST_SKIP() << "needs root";
  const std::string file = cluster.file("disk") + "/jobs.jsonl";
  for (int at = 0; at < 20; ++at) ASSERT_EQ(cluster.run({}, ": " + std::string(100'000, 'x')).exit_code, 0);
  const auto first = cluster.tutti({"jobs", "archive", "--older-than", "0s", "--out", file});
  EXPECT_EQ(first.exit_code, 1) << "two megabytes do not fit into one";
  EXPECT_TRUE(has(first.err, "No space left")) << first.err;
  EXPECT_EQ(read_text(file), "");
  EXPECT_EQ(cluster.json({"jobs", "--all"}).size(), 20U);
}

// ---- asking

TEST(Operators, VariablesAreTakenAlongByName) {
  const TestCluster cluster;
  auto& env = const_cast<TestCluster&>(cluster).env();
  env["SOME_SECRET"] = "of mine";
  EXPECT_EQ(cluster.run({"--env", "SOME_SECRET", "--no-prefix"}, "echo $SOME_SECRET").out, "of mine\n");
  const auto unset = cluster.run({"--env", "NOT_SET_ANYWHERE"}, "true");
  EXPECT_EQ(unset.exit_code, 2);
  EXPECT_TRUE(has(unset.err, "--env NOT_SET_ANYWHERE : it is not set here")) << unset.err;
}

TEST(Operators, WordsOfSlurmLeadToOurs) {
  const auto tutti = [](const std::vector<std::string>& words) {
    std::vector<std::string> all{support::tutti_program};
    all.insert(all.end(), words.begin(), words.end());
    return support::run(all);
  };
  const auto queue = tutti({"squeue"});
  EXPECT_EQ(queue.exit_code, 2);
  EXPECT_TRUE(has(queue.err, "`tutti jobs` lists jobs")) << queue.err;
  EXPECT_TRUE(has(tutti({"sbatch", "x.sh"}).err, "`tutti submit SCRIPT`"));
  EXPECT_TRUE(has(tutti({"run", "-N2", "--", "true"}).err, "here it is --nodes N"));
  EXPECT_TRUE(has(tutti({"run", "-n", "2", "--", "true"}).err, "here it is --ranks N"));
  EXPECT_TRUE(has(tutti({"run", "--gres=gpu:2", "--", "true"}).err, "here it is --gpus N"));
  const auto memory = tutti({"run", "--memory-per-rank", "16", "--", "true"});
  EXPECT_EQ(memory.exit_code, 2);
  EXPECT_TRUE(has(memory.err, "write the unit, such as 512M or 16G")) << memory.err;
  const auto help = tutti({"help", "environment"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name : {"TUTTI_HOME", "TUTTI_ADDR", "TUTTI_TOKEN_FILE", "TUTTI_CA_FILE", "MASTER_ADDR"})
    EXPECT_TRUE(has(help.out, name)) << name;
}

}  // namespace
}  // namespace tutti
