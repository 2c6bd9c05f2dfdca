// Jobs that are out to hurt, by mistake or on purpose, and disks that do not answer: a node bears it, and the
// jobs of others do not notice.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/cluster.hpp"
#include "support/small_disk.hpp"
#include "support/stalled_disk.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::lines_of;
using support::PartsCluster;
using support::PartsOptions;
using support::read_text;
using support::until;
using support::write_text;

// Longer than a lease: a node that stood still meanwhile is lost. There is no event to wait for, nothing is
// to happen; that it takes a job meanwhile is the proof.
constexpr const char* longer_than_a_lease = "sleep 4";

std::string rank_folder(const support::Cluster& cluster, const std::string& id, int attempt = 0) {
  return cluster.home() + "/nodes/n1/ranks/" + id + "." + std::to_string(attempt) + ".0";
}

void expect_never_lost(const support::Cluster& cluster) {
  EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
  EXPECT_FALSE(has(read_text(cluster.file("controller.err")), "lost"))
      << read_text(cluster.file("controller.err"));
  EXPECT_FALSE(has(read_text(cluster.file("controller.err")), "has disconnected"))
      << read_text(cluster.file("controller.err"));
}

std::size_t resident_mib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6)) / 1024;
  }
  return 0;
}

// ---- files of a rank

// A crash that dumps bytes is enough: no malice is needed.
TEST(Hostile, ARankThatPrintsBytesAndFailsCostsItsNodeNothing) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const auto failed = cluster.run({}, "head -c 5000 /dev/zero | tr '\\0' '\\377'; exit 1");
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  expect_never_lost(cluster);
}

TEST(Hostile, AForgedEndCostsItsNodeNothing) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id =
      cluster.submit({"--restarts", "0"},
                     "printf '1000\\nx' >$(dirname $TUTTI_VERDICT_FILE)/exit; kill -9 $PPID; sleep 1000");
  EXPECT_TRUE(cluster.becomes(id, "failed"));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  expect_never_lost(cluster);
}

TEST(Hostile, AForgedFaultOfTheNodeCostsItNothing) {
  support::TempFolder shared;
  PartsCluster cluster(
      PartsOptions{.data = "", .controller_flags = {}, .agent_flags = {"--checkpoints", shared.path()}});
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id =
      cluster.submit({"--restarts", "0"},
                     "printf '126 node\nx' >$(dirname $TUTTI_VERDICT_FILE)/exit; kill -9 $PPID; sleep 1000");
  EXPECT_TRUE(cluster.becomes(id, "failed"));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  expect_never_lost(cluster);
}

TEST(Hostile, AFolderThatIsALinkToItselfKeepsNoAgentFromStarting) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id = cluster.submit({}, "d=$(dirname $TUTTI_VERDICT_FILE); mv $d $d.moved; ln -s $d $d");
  EXPECT_EQ(cluster.wait(id), 0);
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
}

// The mark of a rank that is long over, made by one that runs on.
TEST(Hostile, AForgedMarkLetsNoSecondAttemptStartBesideTheFirst) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id =
      cluster.submit({}, "touch $(dirname $TUTTI_VERDICT_FILE)/acknowledged; exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  ASSERT_TRUE(
      eventually([&] { return std::filesystem::exists(rank_folder(cluster, id) + "/acknowledged"); }));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.run({}, longer_than_a_lease).exit_code, 0);
  EXPECT_EQ(cluster.job(id).value("attempt", -1), 0);
  EXPECT_EQ(cluster.state(id), "running");
  EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
}

TEST(Hostile, PipesInPlaceOfItsFilesHoldUpNobody) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string set = cluster.file("set");
  const std::string id = cluster.submit({},
                                        "cd $(dirname $TUTTI_PROGRESS_FILE) && rm -f exit.room && mkfifo "
                                        "progress verdict acknowledged.new exit.room "
                                        "exit.new shim.new && touch " +
                                            set + "; " + until(gate, "exit 7"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
  EXPECT_EQ(cluster.run({}, longer_than_a_lease).exit_code, 0);
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 7);
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
  EXPECT_TRUE(
      eventually([&] { return std::filesystem::exists(rank_folder(cluster, id) + "/acknowledged"); }));
  EXPECT_EQ(cluster.run({}, longer_than_a_lease).exit_code, 0);
  expect_never_lost(cluster);
}

TEST(Hostile, ALogThatIsALinkToSomethingEndlessIsNotRead) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id =
      cluster.submit({},
                     "echo begun; cd $(dirname $TUTTI_PROGRESS_FILE); sleep 0.2; rm -f log.*; "
                     "ln -s /dev/zero log.00000000000000000000; exit 3");
  EXPECT_EQ(cluster.wait(id), 3);
  const auto logs = cluster.tutti({"logs", id});
  EXPECT_EQ(logs.exit_code, 1) << logs.err;
  EXPECT_TRUE(has(logs.err, "it is no file")) << logs.err;
  EXPECT_EQ(logs.out, "");
  EXPECT_LT(resident_mib(cluster.agent("n1").pid()), 300U);
  expect_never_lost(cluster);
}

TEST(Hostile, AStalledSharedDiskCostsNoNode) {
  PartsOptions options;
  support::TempFolder shared;
  options.agent_flags = {"--checkpoints", shared.path()};
  PartsCluster cluster(options);
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string id = cluster.submit({}, until(gate, "echo went on"));
  ASSERT_TRUE(cluster.becomes(id, "running"));
  // In the folder of its cluster.
  ASSERT_TRUE(eventually([&] {
    for (const auto& cluster_folder : std::filesystem::directory_iterator(shared.path()))
      if (std::filesystem::exists(cluster_folder.path() / id)) return true;
    return false;
  })) << "the rank has its folder";
  std::string stuck;
  {
    const support::StalledDisk disk(shared.path());
    if (!disk.mounted()) {
      write_text(gate, "");
      cluster.wait(id);
      GTEST_SKIP() << "this process may not mount a disk";
    }
    // It waits for its folder on that disk, and nobody waits for it.
    stuck = cluster.submit({"--grace", "200ms"}, "true");
    ASSERT_TRUE(cluster.becomes(stuck, "running"));
    EXPECT_FALSE(eventually([&] { return cluster.node("n1").value("state", "") != "ready"; }, 5s))
        << "longer than a lease";
    EXPECT_EQ(cluster.state(id), "running");
    EXPECT_EQ(cluster.tutti({"cancel", stuck}).exit_code, 0);
    EXPECT_TRUE(cluster.becomes(stuck, "cancelled"));
    write_text(gate, "");
    EXPECT_EQ(cluster.wait(id), 0);
    EXPECT_EQ(cluster.log(id, 0), "went on\n");
    EXPECT_EQ(cluster.job(id)["attempt"], 0);
  }
  EXPECT_EQ(cluster.run({}, "ls -d $TUTTI_CHECKPOINT_DIR").exit_code, 0);
  expect_never_lost(cluster);
}

// The disk of the node itself: it stands still when the agent makes the folder of a rank.
TEST(Hostile, ARankWhoseFolderDoesNotAnswerCostsNoNode) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string before = cluster.submit({}, "true");
  EXPECT_EQ(cluster.wait(before), 0);
  const std::string stuck = std::to_string(std::stoi(before) + 1);
  {
    const support::StalledDisk disk(rank_folder(cluster, stuck));
    if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a disk";
    EXPECT_EQ(cluster.submit({}, "true"), stuck);
    EXPECT_EQ(cluster.run({}, longer_than_a_lease).exit_code, 0) << "others start, and the node is not lost";
    EXPECT_EQ(cluster.state(stuck), "starting");
    EXPECT_TRUE(cluster.node_becomes("n1", "draining")) << "it says that starts take too long";
    EXPECT_TRUE(has(cluster.node("n1").value("reason", ""), "to start a rank")) << cluster.node("n1");
    EXPECT_EQ(cluster.tutti({"cancel", stuck}).exit_code, 0);
    EXPECT_TRUE(cluster.becomes(stuck, "cancelled")) << "nobody waits for the disk";
  }
  EXPECT_TRUE(cluster.node_becomes("n1", "ready"));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  expect_never_lost(cluster);
}

// ---- folders of ranks on disks that do not answer

// Jobs that run until the gate is there, each in a folder that does not answer any more.
class StalledJobs {
 public:
  StalledJobs(const support::Cluster& cluster, int count, const std::string& gate) {
    for (int job = 0; job < count; ++job) {
      const std::string running = cluster.file("running" + std::to_string(job));
      ids_.push_back(cluster.submit({"--grace", "200ms"},
                                    "echo begun; touch " + running + "; " + until(gate, "exit 3")));
      EXPECT_TRUE(eventually([&] { return std::filesystem::exists(running); }));
      EXPECT_TRUE(cluster.becomes(ids_.back(), "running"));
    }
    for (const std::string& id : ids_)
      disks_.push_back(std::make_unique<support::StalledDisk>(rank_folder(cluster, id)));
  }

  bool stalled() const {
    return std::all_of(disks_.begin(), disks_.end(), [](const auto& disk) { return disk->mounted(); });
  }
  const std::vector<std::string>& ids() const { return ids_; }

 private:
  std::vector<std::string> ids_;
  std::vector<std::unique_ptr<support::StalledDisk>> disks_;
};

TEST(Hostile, StalledFoldersKeepNoAgentFromStarting) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string elsewhere = cluster.file("elsewhere");
  const support::StalledDisk disk(elsewhere);
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a disk";
  // One is over, and its folder is a link to a disk that does not answer; one runs on such a disk.
  const auto linked =
      cluster.submit({}, "d=$(dirname $TUTTI_PROGRESS_FILE); mv $d $d.moved; ln -s " + elsewhere + " $d");
  EXPECT_EQ(cluster.wait(linked), 0);
  const std::string gate = cluster.file("gate");
  const std::string fine = cluster.submit({}, until(gate, "echo went on"));
  ASSERT_TRUE(cluster.becomes(fine, "running"));
  const StalledJobs stalled(cluster, 2, cluster.file("never"));
  ASSERT_TRUE(stalled.stalled());
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.run({}, longer_than_a_lease).exit_code, 0);
  // What lives is known to live, and can be ended.
  for (const std::string& id : stalled.ids()) {
    EXPECT_EQ(cluster.state(id), "running");
    EXPECT_EQ(cluster.job(id)["attempt"], 0);
    EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
    EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  }
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(fine), 0);
  EXPECT_EQ(cluster.job(fine)["attempt"], 0);
  EXPECT_EQ(cluster.log(fine, 0), "went on\n");
  EXPECT_TRUE(has(read_text(cluster.file("agent-n1.err")), "does not answer"))
      << read_text(cluster.file("agent-n1.err"));
}

TEST(Hostile, StalledFoldersHoldUpNobodysEnd) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string other_gate = cluster.file("other-gate");
  const std::string fine = cluster.submit({}, until(other_gate, "echo went on; exit 5"));
  const std::string endless = cluster.submit({}, "exec sleep 1000");
  ASSERT_TRUE(cluster.becomes(fine, "running"));
  ASSERT_TRUE(cluster.becomes(endless, "running"));
  const StalledJobs stalled(cluster, 6, gate);
  if (!stalled.stalled()) GTEST_SKIP() << "this process may not mount a disk";
  write_text(gate, "");
  // They end with what is known of them.
  for (const std::string& id : stalled.ids()) {
    EXPECT_EQ(cluster.wait(id), 3);
    EXPECT_EQ(cluster.job(id)["attempt"], 0);
  }
  write_text(other_gate, "");
  EXPECT_EQ(cluster.wait(fine), 5);
  EXPECT_TRUE(has(cluster.job(fine).dump(), "went on")) << "of others all is known: " << cluster.job(fine);
  EXPECT_EQ(cluster.tutti({"cancel", "--now", endless}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(endless, "cancelled"));
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  expect_never_lost(cluster);
}

TEST(Hostile, StalledFoldersHideNobodysLogsAndProgress) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string fine = cluster.submit(
      {}, "echo a line; echo step-one > $TUTTI_PROGRESS_FILE; " +
              until(cluster.file("next"), "echo step-two > $TUTTI_PROGRESS_FILE; " + until(gate)));
  const auto says = [&](const std::string& word) {
    return eventually([&] { return has(cluster.job(fine).dump(), word); });
  };
  ASSERT_TRUE(says("step-one"));
  const StalledJobs stalled(cluster, 6, gate);
  if (!stalled.stalled()) GTEST_SKIP() << "this process may not mount a disk";
  std::vector<std::unique_ptr<support::Process>> readers;
  for (const std::string& id : stalled.ids()) readers.push_back(cluster.start({"logs", id}, "logs-" + id));
  EXPECT_FALSE(eventually([&] { return cluster.node("n1").value("state", "") != "ready"; }, 1s));
  EXPECT_EQ(cluster.log(fine, 0), "a line\n");
  write_text(cluster.file("next"), "");
  EXPECT_TRUE(says("step-two"));
  // Who reads the others is told why there is nothing.
  for (std::size_t reader = 0; reader < readers.size(); ++reader) {
    EXPECT_EQ(readers[reader]->wait(), 1);
    const std::string said = read_text(cluster.file("logs-" + stalled.ids()[reader] + ".err"));
    EXPECT_TRUE(has(said, "does not answer")) << said;
  }
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(fine), 0);
  for (const std::string& id : stalled.ids()) EXPECT_EQ(cluster.wait(id), 3);
  expect_never_lost(cluster);
}

// ---- trees to remove

TEST(Hostile, ADeepAndAWideShippedFolderAreRemovedWithoutANodeNoticing) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string shipped = cluster.file("shipped");
  std::filesystem::create_directories(shipped);
  write_text(shipped + "/file", "text");
  const auto done = cluster.run(
      {"--sync", shipped},
      "perl -e 'for (1..3000) { mkdir(\"d\") && chdir(\"d\") or die $! }' && mkdir wide && cd wide && "
      "perl -e 'for (1..100000) { open(F, \">\", $_) or die $!; close F }'");
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto is_empty = [&](const std::string& name) {
    std::error_code failure;
    const auto path = cluster.home() + "/nodes/n1/" + name;
    return !std::filesystem::exists(path) || std::filesystem::is_empty(path, failure);
  };
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0) << "while it is being removed";
  EXPECT_TRUE(eventually([&] { return is_empty("work") && is_empty("removed"); }));
  expect_never_lost(cluster);
}

TEST(Hostile, AFolderOfARankThatIsDeeperThanAnyStackEndsNoAgent) {
  PartsCluster cluster;
  // Where so many folders are made and removed in a moment.
  const support::SmallDisk disk(cluster.home() + "/nodes/n1", 160);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string id =
      cluster.submit({},
                     "echo kept; cd $(dirname $TUTTI_PROGRESS_FILE) && "
                     "perl -e 'for (1..100000) { mkdir(\"d\") && chdir(\"d\") or die $! }'");
  EXPECT_EQ(cluster.wait(id), 0);
  // While it looks at the folder, or before: the next one looks again.
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(rank_folder(cluster, id) + "/d"); }))
      << "it is more than a log can be";
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  EXPECT_EQ(cluster.log(id, 0), "kept\n");
  EXPECT_EQ(cluster.node("n1").value("state", ""), "ready");
}

// ---- ranks out of the reach of their shim

TEST(Hostile, ARankThatStopsItsShimCanBeCancelled) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string set = cluster.file("set");
  // Again and again, so that waking the shim is not enough.
  const std::string id =
      cluster.submit({"--gpus", "1", "--grace", "200ms"},
                     "trap '' TERM; touch " + set + "; while :; do kill -STOP $PPID; done");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
  EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); }));
  EXPECT_EQ(cluster.run({"--gpus", "8"}, "true").exit_code, 0) << "its GPU is free again";
}

TEST(Hostile, AShimThatItsRankStoppedIsWoken) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const auto done = cluster.run({}, "kill -STOP $PPID; echo said; exit 5");
  EXPECT_EQ(done.exit_code, 5) << done.err;
  EXPECT_EQ(done.out, "[0] said\n");
}

// A process that becomes another user is not ended with its parent any more.
TEST(Hostile, ARankThatBecomesAnotherUserEndsWithItsShim) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  if (::geteuid() != 0 || !std::filesystem::exists("/usr/bin/setpriv"))
    GTEST_SKIP() << "this process may not become another user";
  const std::string pid_file = cluster.file("pid");
  write_text(pid_file, "");
  std::filesystem::permissions(pid_file, std::filesystem::perms::all);
  std::filesystem::permissions(cluster.folder(), std::filesystem::perms::all);
  const std::string id = cluster.submit(
      {"--grace", "200ms"},
      "[ $TUTTI_ATTEMPT = 0 ] || exit 0; exec setpriv --reuid=65534 --clear-groups setsid --fork --wait "
      "sh -c 'trap \"\" TERM; echo $$ >" +
          pid_file + "; while :; do sleep 1; done'");
  ASSERT_TRUE(eventually([&] { return !lines_of(read_text(pid_file)).empty(); }));
  const pid_t stranger = std::stoi(read_text(pid_file));
  const std::string note = rank_folder(cluster, id) + "/shim";
  ASSERT_EQ(::kill(std::stoi(read_text(note)), SIGKILL), 0);
  EXPECT_EQ(cluster.wait(id), 0);
  EXPECT_EQ(cluster.job(id)["attempt"], 1);
  EXPECT_TRUE(eventually([&] { return ::kill(stranger, 0) != 0; }, 5s)) << "the first attempt is over";
  ::kill(stranger, SIGKILL);
}

TEST(Hostile, ARankThatBecomesAnotherUserCanBeCancelled) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  if (::geteuid() != 0 || !std::filesystem::exists("/usr/bin/setpriv"))
    GTEST_SKIP() << "this process may not become another user";
  const std::string id = cluster.submit({"--grace", "200ms"},
                                        "trap '' TERM; exec setpriv --reuid=65534 --clear-groups sh -c 'kill "
                                        "-STOP $PPID; while :; do sleep 1; done'");
  ASSERT_TRUE(cluster.becomes(id, "running"));
  EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); }));
}

// What it leaves looks as a process that has ended and waits to be reaped. It is asked to end, saves, and
// does not end.
TEST(Hostile, ARankThatItsFirstThreadHasLeftIsAskedToEndAndKilled) {
  PartsCluster cluster;
  if (support::run({"/usr/bin/python3", "-c", "import ctypes"}).exit_code != 0)
    GTEST_SKIP() << "python3 is not installed";
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string set = cluster.file("set");
  const std::string saved = cluster.file("saved");
  const std::string program = cluster.file("headless.py");
  write_text(program, R"(import ctypes, os, signal, sys, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
if len(sys.argv) > 3 and os.fork() == 0: os.setsid()
elif len(sys.argv) > 3: time.sleep(1000)
def work():
    while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': pass
    open(sys.argv[1], 'w').close()
    signal.sigwait({signal.SIGTERM})
    open(sys.argv[2], 'w').close()
    time.sleep(1000)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)
)");
  for (const char* beside : {"", " beside"}) {
    const std::string id =
        cluster.submit({"--gpus", "8", "--grace", "1s"},
                       "exec /usr/bin/python3 " + program + " '" + set + "' '" + saved + "'" + beside);
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
    EXPECT_EQ(cluster.tutti({"cancel", id}).exit_code, 0);
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(saved); })) << "it was not asked";
    EXPECT_TRUE(cluster.becomes(id, "cancelled"));
    EXPECT_TRUE(eventually([&] { return support::processes_naming(program).empty(); }));
    for (const auto& file : {set, saved}) std::filesystem::remove(file);
  }
  EXPECT_EQ(cluster.run({"--gpus", "8"}, "true").exit_code, 0) << "its GPUs are free again";
}

// A file, a folder whose specification cannot be written, a link.
TEST(Hostile, WhatAJobLaysInThePlaceOfItsNextFoldersCostsNoNode) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string elsewhere = cluster.file("elsewhere");
  std::filesystem::create_directory(elsewhere);
  const std::string id = cluster.submit({"--restarts", "3"},
                                        "[ $TUTTI_ATTEMPT = 3 ] && exit 0; r=$(dirname "
                                        "$TUTTI_PROGRESS_FILE); r=${r%.*.0}; [ $TUTTI_ATTEMPT = 0 ] "
                                        "&& touch $r.1.0 && mkdir -p $r.2.0/spec && ln -s " +
                                            elsewhere + " $r.3.0; kill -9 $PPID; sleep 1000");
  EXPECT_EQ(cluster.wait(id), 0) << cluster.job(id);
  EXPECT_EQ(cluster.job(id)["attempt"], 3);
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
  const std::string removed = cluster.home() + "/nodes/n1/removed";
  EXPECT_TRUE(eventually([&] { return std::filesystem::is_empty(removed); })) << "what was there goes";
  expect_never_lost(cluster);
}

// ---- a full disk at the end

void expect_ends_once_on_a_full_disk(const std::string& before_the_end) {
  PartsCluster cluster;
  // Over the folder of the node that is to come.
  const std::string data = cluster.home() + "/nodes/n1";
  const support::SmallDisk disk(data, 48);  // MiB: with less a node takes no work
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a disk";
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string runs = cluster.file("runs");
  const std::string id =
      cluster.submit({}, "echo $TUTTI_ATTEMPT >>" + runs + "; cd $(dirname $TUTTI_PROGRESS_FILE); " +
                             before_the_end + "; touch " + runs + ".set; " + until(gate, "exit 0"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(runs + ".set"); }));
  disk.fill();
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0) << cluster.job(id);
  EXPECT_EQ(read_text(runs), "0\n") << "it ran once";
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
  disk.empty();
}

TEST(Hostile, ARankThatFinishedOnAFullDiskDoesNotRunAgain) { expect_ends_once_on_a_full_disk("true"); }

// Nor where the room that was kept for its end has been taken: the shim's own exit code tells.
TEST(Hostile, ARankWhoseEndCannotBeWrittenDoesNotRunAgain) {
  expect_ends_once_on_a_full_disk("rm -f exit.room log.*; mkdir exit.room");
}

// ---- what a rank makes of its own cgroup and folder

// Where the agent of n1 has cgroups of this name, and where it could.
std::vector<std::string> cgroups_named(const support::Cluster& cluster, const std::string& rank) {
  struct stat place {};
  EXPECT_EQ(::stat((cluster.home() + "/nodes/n1").c_str(), &place), 0);
  const std::string name =
      "tutti-n1-" + std::to_string(place.st_dev) + "." + std::to_string(place.st_ino) + "-" + rank;
  std::vector<std::string> folders;
  for (const char* hierarchy : {"", "/unified", "/freezer", "/memory", "/cpu", "/pids"}) {
    const std::string above = "/sys/fs/cgroup" + std::string(hierarchy) + "/tutti";
    if (std::filesystem::exists(above)) folders.push_back(above + "/" + name);
  }
  return folders;
}

TEST(Hostile, CgroupsThatARankMadeInItsOwnGoWithItAndLeftoversWithTheNextAgent) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string begun = cluster.file("begun");
  const std::string id = cluster.submit({"--memory-per-rank", "1G"}, "touch '" + begun + "'; " + until(gate));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(begun); })) << "by then its cgroups are there";
  const auto own = cgroups_named(cluster, id + ".0.0");
  std::size_t made = 0;
  for (const auto& folder : own) {
    std::error_code refused;
    if (std::filesystem::exists(folder) && std::filesystem::create_directories(folder + "/a/b", refused))
      ++made;
  }
  if (made == 0) GTEST_SKIP() << "no cgroup can be made here";
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(id), 0);
  for (const auto& folder : own) {
    EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(folder); })) << folder;
  }
  const auto left = cgroups_named(cluster, "99.0.0");
  for (const auto& folder : left) std::filesystem::create_directories(folder + "/a");
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  for (const auto& folder : left) EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
}

TEST(Hostile, TheCgroupsOfARankWhoseShimWasKilledGoWithItsEnd) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string begun = cluster.file("begun");
  const std::string id =
      cluster.submit({"--memory-per-rank", "1G", "--cpus-per-rank", "1"},
                     "[ $TUTTI_ATTEMPT = 1 ] || { touch '" + begun + "'; exec sleep 1000; }");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(begun); })) << "by then its cgroups are there";
  const auto own = cgroups_named(cluster, id + ".0.0");
  const auto is_there = [](const std::string& folder) { return std::filesystem::exists(folder); };
  if (std::none_of(own.begin(), own.end(), is_there)) GTEST_SKIP() << "no cgroup can be made here";
  ASSERT_EQ(::kill(std::stoi(read_text(rank_folder(cluster, id) + "/shim")), SIGKILL), 0);
  EXPECT_EQ(cluster.wait(id), 0);
  for (const auto& folder : own) EXPECT_FALSE(is_there(folder)) << folder;
}

// Its specification lies in its folder, and names the cgroup that whoever ends it kills.
TEST(Hostile, AForgedCgroupKillsNobodyElse) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string gate = cluster.file("gate");
  const std::string begun = cluster.file("begun");
  const std::string victim = cluster.submit({"--restarts", "0"}, "touch '" + begun + "'; " + until(gate));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(begun); })) << "by then its cgroup is there";
  ASSERT_TRUE(cluster.becomes(victim, "running"));
  const auto held = cgroups_named(cluster, victim + ".0.0");
  const auto is_there = [](const std::string& folder) { return std::filesystem::exists(folder); };
  if (std::none_of(held.begin(), held.end(), is_there)) {
    write_text(gate, "");
    cluster.wait(victim);
    GTEST_SKIP() << "no cgroup can be made here";
  }
  const std::string set = cluster.file("set");
  const std::string id = cluster.submit(
      {"--grace", "200ms"}, "cd $(dirname $TUTTI_PROGRESS_FILE); sed -i 's/-" +
                                std::to_string(std::stoi(victim) + 1) + ".0.0/-" + victim +
                                ".0.0/' spec; touch " + set + "; trap '' TERM; kill -STOP $PPID; sleep 1000");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  EXPECT_EQ(cluster.state(victim), "running");
  write_text(gate, "");
  EXPECT_EQ(cluster.wait(victim), 0);
}

TEST(Hostile, ALinkInPlaceOfItsFolderIsFollowedByNobody) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string elsewhere = cluster.file("elsewhere");
  std::filesystem::create_directory(elsewhere);
  const auto ran =
      cluster.run({}, "d=$(dirname $TUTTI_PROGRESS_FILE); mv $d $d.moved; ln -s " + elsewhere + " $d");
  EXPECT_NE(ran.exit_code, -1);
  // What the agent does about an end it has done before it does it about the next one.
  EXPECT_EQ(cluster.run({}, "true").exit_code, 0);
  const std::string acknowledged = rank_folder(cluster, "2") + "/acknowledged";
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(acknowledged); }));
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
}

// ---- shims that are none

// Of a folder that is elsewhere: an agent that believed it would not begin beside its rank.
TEST(Hostile, AForgedShimKeepsNoAgentFromStarting) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const std::string home = cluster.file("elsewhere");
  std::filesystem::create_directories(home + "/ranks");
  write_text(home + "/identity", "0123456789abcdef\n");
  std::filesystem::copy_file("/bin/sh", home + "/tutti");
  const std::string set = cluster.file("set");
  write_text(home + "/shim", "touch " + set + "; sleep 1000");
  const std::string id =
      cluster.submit({"--restarts", "0"}, "cd " + home +
                                              "; d=$(dirname $TUTTI_PROGRESS_FILE); mkdir ranks/${d##*/}; "
                                              "exec ./tutti shim $d 9<ranks/${d##*/}");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
  const auto held = cgroups_named(cluster, id + ".0.0");
  const auto is_there = [](const std::string& folder) { return std::filesystem::exists(folder); };
  if (std::none_of(held.begin(), held.end(), is_there)) GTEST_SKIP() << "no cgroup can be made here";
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
}

// A person who moves the agent's folder leaves it there so, and the agent would not begin anew.
TEST(Hostile, ARankThatMovesItsFolderIntoOneAsAnAgentsKeepsNoAgentFromStarting) {
  for (const bool removed : {false, true}) {
    PartsCluster cluster;
    ASSERT_TRUE(cluster.start_agent("n1"));
    const std::string home = cluster.file("elsewhere");
    std::filesystem::create_directories(home + "/ranks");
    write_text(home + "/identity", "0123456789abcdef\n");
    const std::string set = cluster.file("set");
    const std::string id = cluster.submit(
        {"--restarts", "0"}, "mv $(dirname $TUTTI_PROGRESS_FILE) " + home + "/ranks; " +
                                 (removed ? "rm -r " + home + "; " : "") + "touch " + set + "; sleep 1000");
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
    cluster.agent("n1").signal(SIGKILL);
    cluster.agent("n1").wait();
    ASSERT_TRUE(cluster.start_agent("n1")) << read_text(cluster.file("agent-n1.err"));
    EXPECT_TRUE(cluster.becomes(id, "failed"));
    EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); })) << "nobody answers for it";
  }
}

TEST(Hostile, AForgedNoteOfItsShimKillsNobodyElse) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const support::Process victim({"sleep", "1000"}, cluster.file("victim"));
  const std::string set = cluster.file("set");
  const std::string pid = std::to_string(victim.pid());
  const std::string id = cluster.submit(
      {"--grace", "200ms"}, "cd $(dirname $TUTTI_PROGRESS_FILE); place=$(cut -d' ' -f3 shim); echo " + pid +
                                " $(cut -d' ' -f22 /proc/" + pid + "/stat) $place >shim; touch " + set +
                                "; sleep 1000");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(set); }));
  cluster.agent("n1").signal(SIGKILL);
  cluster.agent("n1").wait();
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_EQ(cluster.job(id)["attempt"], 0);
  EXPECT_EQ(cluster.tutti({"cancel", "--now", id}).exit_code, 0);
  EXPECT_TRUE(cluster.becomes(id, "cancelled"));
  EXPECT_TRUE(eventually([&] { return cluster.ranks_on("n1").empty(); }));
  EXPECT_TRUE(std::filesystem::exists("/proc/" + pid + "/exe")) << "it has nothing to do with it";
}

}  // namespace
}  // namespace tutti
