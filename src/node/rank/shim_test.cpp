#include "node/rank/shim.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/files/descriptor.hpp"
#include "node/rank/cgroups.hpp"
#include "node/rank/folder_test.hpp"
#include "node/rank/hold.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/limits.hpp"
#include "node/rank/log_segments.hpp"
#include "node/rank/process.hpp"
#include "node/rank/rank_folder.hpp"
#include "node/rank/secrets.hpp"
#include "node/rank/told_end.hpp"

namespace tutti::rank {
namespace {

constexpr int patience_ms = 20'000;

bool is_gone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

// Runs shims in forked children of the test. A rank tells the test what it has to say through a named pipe.
class ShimTest : public FolderTest {
 protected:
  ShimTest() {
    EXPECT_EQ(mkfifo(path("said").c_str(), 0600), 0);
    said_ = files::FileDescriptor(open(path("said").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  }
  ~ShimTest() override {
    if (shim_ <= 0) return;
    kill(shim_, SIGUSR1);
    waitpid(shim_, nullptr, 0);
  }

  RankSpec shell(const std::string& script) const {
    return {.command = {"sh", "-c", script},
            .env = {"PATH=/usr/bin:/bin", "SAID=" + path("said")},
            .workdir = folder(),
            .cgroup = "tutti-test-" + std::to_string(getpid()),
            .output = {}};
  }

  void start(const RankSpec& spec) {
    const auto written = write_spec(folder(), spec);
    ASSERT_TRUE(written) << written.error().text();
    shim_ = fork();
    if (shim_ == 0) _exit(run_shim(folder()));
  }

  RankExit finish() {
    int status = -1;
    waitpid(shim_, &status, 0);
    shim_ = -1;
    const auto exit = read_exit(folder());
    EXPECT_TRUE(exit && *exit);
    // Twice on record: in the folder, and by the shim itself.
    if (exit && *exit) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == (*exit)->exit_code);
    }
    return exit && *exit ? **exit : RankExit{.exit_code = -1, .detail = "no exit on record"};
  }

  RankExit run(const RankSpec& spec) {
    start(spec);
    return finish();
  }

  void kill_shim() {
    kill(shim_, SIGKILL);
    waitpid(shim_, nullptr, 0);
    shim_ = -1;
  }

  // The next line that the rank said.
  std::string heard() {
    std::string line;
    char letter = 0;
    while (letter != '\n') {
      pollfd event{.fd = said_.get(), .events = POLLIN, .revents = 0};
      if (poll(&event, 1, patience_ms) <= 0) return "nothing was said";
      if (read(said_.get(), &letter, 1) == 1 && letter != '\n') line += letter;
    }
    return line;
  }
  pid_t heard_pid() { return std::stoi(heard()); }

  ShimProcess shim() const {
    const auto process = read_shim(folder());
    return process && *process ? **process : ShimProcess();
  }

  std::string log() const {
    const auto chunk = read_log(folder(), 0, std::size_t{1} << 26);
    return chunk ? chunk->bytes : chunk.error().text();
  }

 private:
  files::FileDescriptor said_;
  pid_t shim_ = -1;
};

TEST_F(ShimTest, TheExitCodeIsTheCommands) {
  EXPECT_EQ(run(shell("exit 0")), RankExit());
  EXPECT_EQ(run(shell("exit 7")), (RankExit{.exit_code = 7, .detail = ""}));
  EXPECT_EQ(run(shell("kill -SEGV $$")),
            (RankExit{.exit_code = 128 + SIGSEGV, .detail = "", .by_signal = true}));
  EXPECT_EQ(run(shell("exit 139")), (RankExit{.exit_code = 139, .detail = ""}));
}

// Its first thread, which keeps the log, is stopped as a disk would stop it: nothing that it is sent ends
// that.
TEST_F(ShimTest, TheEndOfARankIsToldWhileItsLogCannotBeWritten) {
  ASSERT_EQ(mkfifo(path("gate").c_str(), 0600), 0);
  start(shell("echo up > $SAID; read word < gate; exit 7"));
  ASSERT_EQ(heard(), "up");
  const ShimProcess hung = shim();
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  const std::filesystem::path threads = "/proc/" + std::to_string(hung.pid) + "/task";
  const auto has_begun = [&] { return std::distance(std::filesystem::directory_iterator(threads), {}) > 1; };
  while (!has_begun() && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  ASSERT_TRUE(has_begun()) << "the thread that tells it";
  if (ptrace(PTRACE_SEIZE, hung.pid, nullptr, nullptr) != 0)
    GTEST_SKIP() << "this process may not stop a thread of another";
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, hung.pid, nullptr, nullptr), 0);
  int status = 0;
  ASSERT_EQ(waitpid(hung.pid, &status, __WALL), hung.pid);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  EXPECT_FALSE(told_end(hung)) << "its rank runs";
  std::ofstream(path("gate")) << "go" << std::endl;
  while (!told_end(hung) && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  EXPECT_EQ(told_end(hung), 7);
  ASSERT_EQ(ptrace(PTRACE_DETACH, hung.pid, nullptr, nullptr), 0);
  EXPECT_EQ(finish().exit_code, 7) << "it goes on when it can";
}

TEST_F(ShimTest, ACommandThatCannotRunSaysWhy) {
  RankSpec spec = shell("");
  spec.command = {"no-such-command"};
  const auto expect_missing = [&](int code, const std::string& why, const std::string& advice) {
    const RankExit exit = run(spec);
    EXPECT_EQ(exit.exit_code, code);
    EXPECT_TRUE(exit.no_program);
    EXPECT_TRUE(exit.detail.starts_with("cannot run '" + spec.command[0] + "': " + why + "; "))
        << exit.detail;
    EXPECT_NE(exit.detail.find(advice), std::string::npos) << exit.detail;
  };
  expect_missing(127, "No such file or directory", "in a folder of PATH");
  spec.command = {path("missing/program")};
  expect_missing(127, "No such file or directory", "must be there on every node");
  spec.command = {folder()};
  expect_missing(126, "Permission denied", "chmod +x");
  EXPECT_EQ(run(shell("no-such-command 2> /dev/null")), (RankExit{.exit_code = 127, .detail = ""}))
      << "the shell says so, and has run";
  spec.command = {"true"};
  spec.workdir = path("missing");
  EXPECT_EQ(run(spec), (RankExit{.exit_code = 126,
                                 .detail = "cannot enter the folder '" + path("missing") +
                                           "': No such file or directory"}));
}

TEST_F(ShimTest, ADamagedSpecificationEndsTheRank) {
  std::ofstream(path("spec")) << "garbage";
  const pid_t child = fork();
  if (child == 0) _exit(run_shim(folder()));
  waitpid(child, nullptr, 0);
  const auto exit = read_exit(folder());
  ASSERT_TRUE(exit && *exit);
  EXPECT_EQ((*exit)->exit_code, 126);
  EXPECT_TRUE((*exit)->node_fault);
  EXPECT_NE((*exit)->detail.find("damaged"), std::string::npos);
}

// As on a disk that is full by the time the shim begins: what keeps the rank from running is the node's.
TEST_F(ShimTest, AShimThatCanWriteNothingSaysThatItsRankHasNotRun) {
  ASSERT_TRUE(write_spec(folder(), shell("exit 3")));
  const pid_t shim = fork();
  if (shim == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    _exit(setrlimit(RLIMIT_FSIZE, &none) == 0 ? run_shim(folder()) : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(shim, &status, 0), shim);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == exit_code_not_begun) << status;
}

TEST_F(ShimTest, TheRankSeesItsSurroundings) {
  RankSpec spec = shell("pwd; echo \"$GREETING\"; env | wc -l; read line || echo no input; echo wrong >&2");
  spec.env = {"PATH=/usr/bin:/bin", "GREETING=hello there", "PWD=" + folder()};
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_EQ(log(), folder() + "\nhello there\n3\nno input\nwrong\n");
}

TEST_F(ShimTest, WhereMemoryIsShortTheRankGoesBeforeItsShim) {
  EXPECT_EQ(run(shell("cat /proc/self/oom_score_adj")).exit_code, 0);
  EXPECT_EQ(log(), std::to_string(rank_oom_score) + "\n");
}

TEST_F(ShimTest, OutputIsCapturedWhole) {
  RankSpec spec = shell("head -c 5000000 /dev/zero | tr '\\0' 'x'; echo end");
  spec.output = "copy";
  EXPECT_EQ(run(spec).exit_code, 0);
  const std::string expected = std::string(5'000'000, 'x') + "end\n";
  EXPECT_TRUE(log() == expected);
  std::stringstream copy;
  copy << std::ifstream(path("copy")).rdbuf();
  EXPECT_TRUE(copy.str() == expected);
}

TEST_F(ShimTest, AnOutputFileThatCannotBeWrittenIsToldAndForgiven) {
  RankSpec spec = shell("echo fine");
  spec.output = path("missing/copy");
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_EQ(log(), "tutti: cannot write " + spec.output + ": No such file or directory\nfine\n");
}

TEST_F(ShimTest, AnOutputThatIsAFolderOrAPipeHoldsUpNobody) {
  RankSpec spec = shell("echo fine");
  spec.output = folder();
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_EQ(log(), "tutti: cannot write " + folder() + ": Is a directory\nfine\n");
  std::filesystem::remove(path("log.00000000000000000000"));
  spec.output = path("pipe");
  ASSERT_EQ(mkfifo(spec.output.c_str(), 0600), 0);
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_EQ(log(), "tutti: cannot write " + spec.output + ": No such device or address\nfine\n");
  // Somebody has it open and does not read.
  const files::FileDescriptor reader(open(spec.output.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  spec.command.back() = "head -c 1000000 /dev/zero | tr '\\0' 'x'; echo end";
  const RankExit exit = run(spec);
  EXPECT_EQ(exit.exit_code, 0);
  EXPECT_NE(exit.detail.find("is cut: Resource temporarily unavailable"), std::string::npos) << exit.detail;
  EXPECT_TRUE(log().ends_with("end\n"));
}

// Its writer may hang where not even a kill reaches it.
TEST_F(ShimTest, ACopyWhoseDiskDoesNotAnswerKeepsNoRankFromItsEnd) {
  RankSpec spec = shell("echo said; echo ready > $SAID; exec sleep 1000");
  spec.output = "copy";
  start(spec);
  ASSERT_EQ(heard(), "ready");
  for (const pid_t pid : descendants_of(shim().pid))
    if (process_name(pid) == copy_writer_name) kill(pid, SIGSTOP);
  ASSERT_TRUE(end_shim(shim(), true));
  const RankExit exit = finish();
  EXPECT_EQ(exit.exit_code, 128 + SIGKILL);
  EXPECT_EQ(exit.detail, "the copy of its log in " + path("copy") + " is cut: its disk does not answer");
  EXPECT_TRUE(log().starts_with("said\ntutti: " + path("copy") + " ends here")) << log();
}

TEST_F(ShimTest, ALogThatMayNotGrowAnyMoreEndsNobody) {
  ASSERT_TRUE(write_spec(folder(), shell("head -c 200000 /dev/zero | tr '\\0' 'x'; exit 3")));
  const pid_t shim = fork();
  if (shim == 0) {
    const rlimit few{.rlim_cur = 65'536, .rlim_max = 65'536};
    _exit(setrlimit(RLIMIT_FSIZE, &few) == 0 ? run_shim(folder()) : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(shim, &status, 0), shim);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_EQ(log(), std::string(65'536, 'x'));
}

TEST_F(ShimTest, ALongLogKeepsItsTail) {
  RankSpec spec = shell("seq 1 20000");
  spec.log_bytes_max = kib(64);
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_EQ(*last_lines(folder(), 2, 1000), "19999\n20000\n");
  EXPECT_LE(log().size(), std::size_t{64} << 10);
}

TEST_F(ShimTest, AnEndReachesEveryProcess) {
  RankSpec spec = shell(
      "(setsid sh -c 'trap \"\" TERM; echo $$ > $SAID; exec sleep 1000' &)\n"
      "echo $$ > $SAID; exec sleep 1000");
  spec.grace = 50ms;
  start(spec);
  const pid_t first = heard_pid();
  const pid_t second = heard_pid();
  ASSERT_TRUE(is_alive(shim()));
  ASSERT_TRUE(end_shim(shim(), false));
  EXPECT_EQ(finish().exit_code, 128 + SIGTERM);
  EXPECT_TRUE(is_gone(first));
  EXPECT_TRUE(is_gone(second));
}

TEST_F(ShimTest, ARankMayEndInItsOwnWay) {
  const RankSpec spec =
      shell("mkfifo never; trap 'echo saved; exit 3' TERM; echo ready > $SAID; read nothing <> never");
  start(spec);
  ASSERT_EQ(heard(), "ready");
  ASSERT_TRUE(end_shim(shim(), false));
  EXPECT_EQ(finish().exit_code, 3);
  EXPECT_EQ(log(), "saved\n");
}

TEST_F(ShimTest, AtOnceDoesNotWaitForTheGracePeriod) {
  RankSpec spec = shell("trap '' TERM; echo ready > $SAID; sleep 1000; sleep 1000");
  spec.grace = 1h;
  start(spec);
  ASSERT_EQ(heard(), "ready");
  ASSERT_TRUE(end_shim(shim(), false));
  ASSERT_TRUE(end_shim(shim(), true));
  EXPECT_EQ(finish().exit_code, 128 + SIGKILL);
}

// Processes that fork for ever while they are being killed.
TEST_F(ShimTest, ARankThatKeepsForkingIsEnded) {
  RankSpec spec = shell(
      "trap '' TERM\n"
      "(forks=0; while :; do sleep 1000 & forks=$((forks + 1)); [ $forks = 20 ] && echo ready > $SAID; done) "
      "& wait");
  spec.grace = 0ms;
  start(spec);
  ASSERT_EQ(heard(), "ready");
  ASSERT_TRUE(end_shim(shim(), false));
  EXPECT_EQ(finish().exit_code, 128 + SIGKILL);
}

TEST_F(ShimTest, WhatARankLeavesBehindIsEnded) {
  start(shell("sleep 1000 & echo $! > $SAID; setsid sleep 1000 & echo $! > $SAID; echo done"));
  const pid_t first = heard_pid();
  const pid_t second = heard_pid();
  EXPECT_EQ(finish().exit_code, 0);
  EXPECT_TRUE(is_gone(first));
  EXPECT_TRUE(is_gone(second));
  EXPECT_EQ(log(), "done\n");
}

TEST_F(ShimTest, TheFolderForTheRankIsMadeByItsOwnProcess) {
  RankSpec spec = shell("ls -d made/for/it");
  spec.checkpoints = path("made/for/it");
  std::filesystem::create_directories(path("made/for/.ended"));
  std::ofstream(path("made/for/.ended/it")) << "";
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("made/for/.ended/it"))) << "its job is not over";
  EXPECT_EQ(log(), "made/for/it\n");
}

TEST_F(ShimTest, ARankThatDoesNotFindWhatItsJobHasSavedDoesNotRun) {
  RankSpec spec = shell("echo ran");
  spec.checkpoints = path("shared/cluster/7");
  spec.has_saved = true;
  const RankExit exit = run(spec);
  EXPECT_TRUE(exit.node_fault);
  EXPECT_EQ(exit.exit_code, 126);
  EXPECT_EQ(exit.detail, "what job 7 has saved is not in " + path("shared/cluster") +
                             " on this node: is its disk mounted?");
  EXPECT_EQ(log(), "");
}

TEST_F(ShimTest, TheRankHasTheLimitOfFilesThatItIsGivenAndMayRaiseIt) {
  RankSpec spec = shell("ulimit -Sn; test $(ulimit -Hn) = \"$HARD\" && ulimit -Sn 101");
  rlimit own{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &own), 0);
  const bool unlimited = own.rlim_max == RLIM_INFINITY;
  spec.env.push_back("HARD=" + (unlimited ? "unlimited" : std::to_string(own.rlim_max)));
  spec.open_files = 100;
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_EQ(log(), "100\n");
}

TEST_F(ShimTest, NothingKeepsTheEndFromBeingRecorded) {
  EXPECT_EQ(run(shell("rm exit.room; mkfifo exit.room exit.new; exit 4")).exit_code, 4);
  EXPECT_FALSE(std::filesystem::exists(path("exit.new")));
}

TEST_F(ShimTest, AKilledShimTakesItsRankAlong) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that the orphan is the test's to reap
  start(shell("echo $$ > $SAID; exec sleep 1000"));
  const pid_t main = heard_pid();
  kill_shim();
  int status = 0;
  EXPECT_EQ(waitpid(main, &status, 0), main);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// Neither in the shim's session nor its descendants, once it has gone.
TEST_F(ShimTest, WhatAKilledShimLeavesBehindIsStillHeld) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const RankSpec spec = shell("setsid sh -c 'echo $$ > $SAID; exec sleep 1000' & exec sleep 1000");
  start(spec);
  const pid_t stray = heard_pid();
  const ShimProcess gone = shim();
  const Hold hold(spec.cgroup);
  kill_shim();
  if (!hold.exists()) {
    kill(stray, SIGKILL);
    GTEST_SKIP() << "this process may not make a cgroup";
  }
  EXPECT_FALSE(is_gone(stray));
  bool cleared = false;
  for (int round = 0; round < 1000 && !cleared; ++round) {
    cleared = kill_leftovers(hold, gone);
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    usleep(10'000);
  }
  EXPECT_TRUE(cleared);
  EXPECT_TRUE(is_gone(stray));
  EXPECT_TRUE(hold.remove());
  EXPECT_TRUE(clear_cgroups(spec.cgroup)) << "its limits go with it";
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// As root a rank can leave its cgroup. Its shim ends all its descendants wherever they are, and so does
// whoever ends the rank over the head of a shim that lives.
class LeavingShimTest : public ShimTest {
 protected:
  // Says the pid of a process that has left, and goes on.
  RankSpec leaves(const std::string& then) {
    RankSpec spec = shell("");
    const std::string held = Hold(spec.cgroup).folder();
    const std::string root = held.substr(0, held.rfind('/', held.rfind('/') - 1));
    spec.command.back() = "(echo 0 > " + root +
                          "/cgroup.procs && setsid sh -c 'echo $$ > $SAID; exec sleep 1000' "
                          "|| echo 0 > $SAID) & " +
                          then;
    return spec;
  }
};

TEST_F(LeavingShimTest, WhoHasLeftItsCgroupIsEndedWithItsRank) {
  start(leaves("exec sleep 1000"));
  const pid_t left = heard_pid();
  ASSERT_TRUE(end_shim(shim(), true));
  finish();
  if (left == 0) GTEST_SKIP() << "this process may not leave its cgroup";
  EXPECT_TRUE(is_gone(left));
}

TEST_F(LeavingShimTest, WhoHasLeftItsCgroupIsEndedOverTheHeadOfItsShim) {
  const RankSpec spec = leaves("exec sleep 1000");
  start(spec);
  const pid_t left = heard_pid();
  const Hold hold(spec.cgroup);
  const ShimProcess stopped = shim();
  ASSERT_EQ(kill(stopped.pid, SIGSTOP), 0);
  bool cleared = left == 0 || !hold.exists();
  const bool skipped = cleared;
  for (int round = 0; round < 1000 && !cleared; ++round) {
    cleared = kill_leftovers(hold, stopped);
    usleep(10'000);
  }
  EXPECT_TRUE(cleared);
  const auto process = read_process(left);
  if (!skipped) {
    EXPECT_TRUE(!process || process->state == 'Z') << "it lives on";
  }
  kill(stopped.pid, SIGCONT);
  ASSERT_TRUE(end_shim(stopped, true));
  finish();
  if (skipped) GTEST_SKIP() << "this process may not leave its cgroup";
}

TEST_F(ShimTest, ARankAboveItsMemoryIsKilledAndToldSo) {
  RankSpec spec = shell("tail /dev/zero");
  spec.memory = mib(48);
  if (!RankLimits({.name = spec.cgroup, .cpus = 0, .memory = spec.memory}).memory_has_cgroup())
    GTEST_SKIP() << "this process may not make a cgroup for memory";
  const RankExit exit = run(spec);
  EXPECT_EQ(exit.exit_code, 128 + SIGKILL);
  EXPECT_EQ(exit.detail, "killed: memory limit of 48 MiB reached");
  EXPECT_FALSE(std::filesystem::exists("/sys/fs/cgroup/memory/tutti/" + spec.cgroup));
  EXPECT_FALSE(std::filesystem::exists("/sys/fs/cgroup/tutti/" + spec.cgroup));
}

TEST_F(ShimTest, ARankIsPutUnderItsCpuLimit) {
  RankSpec spec = shell("cat /proc/self/cgroup");
  spec.cpus = 1;
  if (!RankLimits({.name = spec.cgroup, .cpus = spec.cpus, .memory = {}}).cpus_have_cgroup())
    GTEST_SKIP() << "this process may not make a cgroup for CPUs";
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_NE(log().find("/tutti/" + spec.cgroup), std::string::npos) << log();
}

TEST_F(ShimTest, EveryRankIsUnderALimitOfProcesses) {
  RankSpec spec = shell("true");
  const std::string file = "/tutti/" + spec.cgroup + "/pids.max";
  spec = shell("cat /sys/fs/cgroup/pids" + file + " /sys/fs/cgroup" + file + "; true");
  const ProcessLimits most = process_limits(host_processes());
  if (!RankLimits({.name = spec.cgroup, .cpus = 0, .memory = {}, .processes = most}).processes_have_cgroup())
    GTEST_SKIP() << "this process may not make a cgroup for processes";
  EXPECT_EQ(run(spec).exit_code, 0);
  EXPECT_NE(log().find(std::to_string(most.rank) + "\n"), std::string::npos) << log();
  EXPECT_FALSE(std::filesystem::exists("/sys/fs/cgroup/pids/tutti/" + spec.cgroup));
}

// The folder of the test is above that of the rank here, so that the rank can replace its own.
TEST_F(ShimTest, ARankThatPutsALinkInPlaceOfItsFolderChoosesNotWhereItsEndIsWritten) {
  std::filesystem::create_directories(path("own"));
  std::filesystem::create_directories(path("elsewhere"));
  auto spec = shell("mv own moved && ln -s elsewhere own && echo said; exit 3");
  ASSERT_TRUE(write_spec(path("own"), spec));
  const pid_t shim = fork();
  if (shim == 0) _exit(run_shim(path("own")));
  int status = 0;
  ASSERT_EQ(waitpid(shim, &status, 0), shim);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_TRUE(std::filesystem::is_symlink(path("own")));
  EXPECT_TRUE(std::filesystem::is_empty(path("elsewhere")));
  const auto exit = read_exit(path("moved"));
  ASSERT_TRUE(exit && *exit);
  EXPECT_EQ((*exit)->exit_code, 3);
}

TEST_F(ShimTest, SecretsComeBesideTheSpecificationAndGoWithTheRank) {
  const auto packed = pack_secrets({{"TOKEN", "a value"}});
  ASSERT_TRUE(packed);
  RankSpec spec = shell(
      "echo $TUTTI_SECRETS > $SAID; stat -c %a $TUTTI_SECRETS/TOKEN > $SAID; cat $TUTTI_SECRETS/TOKEN > "
      "$SAID; "
      "echo > $SAID; ls -l /proc/self/fd | grep -c memfd > $SAID; tr '\\0' '\\n' < /proc/$$/environ | grep "
      "-c value > $SAID");
  spec.env.push_back("TUTTI_SECRETS=/somewhere/else");
  spec.secrets = 1;
  ASSERT_TRUE(write_spec(folder(), spec));
  const pid_t shim = fork();
  if (shim == 0) {
    dup2(packed->get(), secrets_descriptor);
    _exit(run_shim(folder()));
  }
  const std::string where = heard();
  EXPECT_TRUE(where.starts_with("/dev/shm/tutti-secrets-") || where.starts_with("/run/user/")) << where;
  EXPECT_EQ(heard(), "400");
  EXPECT_EQ(heard(), "a value");
  EXPECT_EQ(heard(), "0") << "the rank has no descriptor of it";
  EXPECT_EQ(heard(), "0");
  int status = -1;
  ASSERT_EQ(waitpid(shim, &status, 0), shim);
  EXPECT_FALSE(std::filesystem::exists(where));
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with("log")) continue;
    std::ifstream file(entry.path());
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(content.find("a value"), std::string::npos) << entry.path();
  }
}

TEST_F(ShimTest, WithoutTheSecretsThatItsSpecificationNamesNothingRuns) {
  RankSpec spec = shell("echo ran > $SAID");
  spec.secrets = 1;
  ASSERT_TRUE(write_spec(folder(), spec));
  const pid_t shim = fork();
  if (shim == 0) {
    close(secrets_descriptor);
    _exit(run_shim(folder()));
  }
  int status = -1;
  ASSERT_EQ(waitpid(shim, &status, 0), shim);
  const auto exit = read_exit(folder());
  ASSERT_TRUE(exit && *exit);
  EXPECT_TRUE((*exit)->node_fault);
  EXPECT_NE((*exit)->detail.find("secrets"), std::string::npos) << (*exit)->detail;
}

}  // namespace
}  // namespace tutti::rank
