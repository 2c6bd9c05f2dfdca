// What ranks that run as the accounts of their users (`tutti agent --isolation user`) do not reach. An
// attempt that could not succeed anywhere says nothing: root tries as well.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "support/isolated.hpp"
#include "support/stalled_disk.hpp"

namespace tutti {
namespace {

namespace fs = std::filesystem;

using support::ada_id;
using support::ada_uid;
using support::as_login;
using support::eventually;
using support::Finished;
using support::has;
using support::Isolation;
using support::lines_of;
using support::read_text;
using support::until;
using support::write_text;

// Each line that succeeds is one that should not have.
constexpr const char* tries = R"sh(
open() { echo "OPEN: $1"; }
closed() { [ -z "$CONTROL" ] || echo "CLOSED: $1"; }
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then open "$name"; else closed "$name"; fi; }
sh_try() { name=$1; shift; try "$name" sh -c "$1"; }
said=$(dirname $TUTTI_PROGRESS_FILE); mine=$(dirname $said); ada=$A/ranks/$ADA.0.0
)sh";

// What changes nothing, and so is tried by root as well, who can do all of it.
constexpr const char* looks = R"sh(
try "the admin token" cat $HOME_OF_CLUSTER/controller/admin.token
try "the join token" cat $HOME_OF_CLUSTER/controller/join.token
try "a list of the agent's folder" ls $A
try "a list of its ranks" ls $A/ranks
try "a list of shipped folders" ls $A/work
try "a list of places" ls $A/places
for f in $FILES; do try "the agent's $f" cat $A/$f; done
try "the agent's lock" sh -c "exec 9<>$A/lock"
try "its own specification" cat $mine/spec
try "its own log" cat $mine/log.00000000000000000000
try "a list of another's folder" ls $ada
try "what another says" cat $ada/said/progress
try "the shipped folder of another" ls $ADA_WORK
try "a shipped file of another" cat $ADA_WORK/secret
try "a checkpoint of another" cat $ADA_SAVED/saved
try "a list of another's checkpoints" ls $ADA_SAVED
try "the private places of another" ls $ADA_PLACES/tmp
try "/tmp of another" cat /tmp/secret
try "/tmp of the machine" ls $HOST_TMP
try "/var/tmp of another" cat /var/tmp/secret
try "/dev/shm of another" cat /dev/shm/secret
sh_try "/dev/shm of the machine" "ls -d /dev/shm/tutti-*"
try "another's process in /proc" ls -d /proc/$ADA_PID
try "another's environment" grep -q SECRET=secret /proc/$ADA_PID/environ
try "another's folders by /proc" ls /proc/$ADA_PID/cwd/
try "another's memory" dd if=/proc/$ADA_PID/mem bs=4096 skip=$ADA_PAGE count=1
try "the files of its shim" ls /proc/$PPID/fd/
try "the shim of its own in /proc" ls -d /proc/$PPID
try "the first process in /proc" ls -d /proc/1
try "signalling another" kill -0 $ADA_PID
try "signalling its shim" kill -0 $PPID
try "signalling the agent" kill -0 $AGENT_PID
try "tracing another" perl -e "exit(syscall(101, 0x4206, $ADA_PID, 0, 0) == 0 ? 0 : 1)"
try "tracing the agent" perl -e "exit(syscall(101, 0x4206, $AGENT_PID, 0, 0) == 0 ? 0 : 1)"
try "becoming root" perl -e 'exit(syscall(105, 0) == 0 ? 0 : 1)'
try "becoming root by effective id" perl -e 'exit(syscall(117, -1, 0, -1) == 0 ? 0 : 1)'
try "another's groups" perl -e 'exit(syscall(116, 0, 0) == 0 ? 0 : 1)'
sh_try "a set-uid program" "[ \$($SET_UID_ID -u) = 0 ]"
sh_try "su" "echo | su -s /bin/sh -c true root"
try "the kernel's messages" perl -e 'open(my $f, "<", "/dev/kmsg") or exit 1'
try "a disk" dd if=$DISK bs=512 count=1
try "making a device" sh -c "mknod $said/kmsg c 1 11 && rm $said/kmsg"
try "entering the namespaces of another" nsenter -t $ADA_PID -m true
sh_try "memory of System V of another" "ipcs -m -i $ADA_MEMORY | grep -q shmid"
sh_try "a higher priority" "[ \$(nice -n -5 nice) -lt 0 ]"
sh_try "settings of the kernel" "set=\$(cat /proc/sys/kernel/pid_max) && echo \$set >/proc/sys/kernel/pid_max"
sh_try "passwords" "cat /etc/shadow"
for call in $CALLS; do try "the kernel's call $call" perl -e "exit(syscall($call) < 0 ? 1 : 0)"; done
echo "all was tried"
)sh";

constexpr const char* attack = R"sh(
try "saving for another" touch $ADA_SAVED/mine
try "writing into the agent's folder" touch $A/mine
try "writing into its rank's folder" touch $mine/exit
try "moving its rank's folder" mv $mine $mine.moved
try "moving its own folder" mv $said $said.moved
try "a link in place of its own folder" sh -c "rmdir $said && ln -s /etc $said"
try "a link to another's file as its own" ln $ada/spec $said/mine
try "killing another" kill -9 $ADA_PID
try "killing its shim" kill -9 $PPID
try "stopping its shim" kill -STOP $PPID
try "killing the agent" kill -9 $AGENT_PID
try "tracing its shim" perl -e "exit(syscall(101, 0x4206, $PPID, 0, 0) == 0 ? 0 : 1)"
try "unmounting its /tmp" umount /tmp
try "unmounting /proc" umount /proc
try "unmounting /run/user" umount /run/user
try "unmounting its /tmp as root of its own" unshare -Urm umount /tmp
try "a disk as root of its own" unshare -Urm head -c 1 $DISK
try "the agent's folder as root of its own" unshare -Ur ls $A
cgroups=0; limits=0
for g in $CGROUPS; do [ -e $g ] && cgroups=$((cgroups + 1)) && sh_try "the cgroup $g" "echo $$ >$g"; done
for g in $LIMITS; do [ -e $g ] && limits=$((limits + 1)) && sh_try "the limit $g" "exec 9>>$g"; done
echo "$cgroups cgroups and $limits limits were tried"
sh_try "more open files than the limit" 'ulimit -n 100 && ulimit -Hn 200'
sh_try "to be spared when memory is short" "echo -500 >/proc/self/oom_score_adj"
sh_try "the clock" "date -s \"\$(date)\""
echo "all was tried"
)sh";

// Where cgroups are of version 1, of both versions, and of version 2 alone; which of them are there is
// counted.
constexpr const char* cgroup_files =
    "/sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/*/tasks "
    "/sys/fs/cgroup/tutti/*/cgroup.procs /sys/fs/cgroup/*/tutti/*/cgroup.procs "
    "/sys/fs/cgroup/*/tutti/*/tasks";
constexpr const char* limit_files =
    "/sys/fs/cgroup/tutti/*/memory.max /sys/fs/cgroup/tutti/*/pids.max /sys/fs/cgroup/tutti/*/cpu.max "
    "/sys/fs/cgroup/tutti/*/cgroup.freeze /sys/fs/cgroup/*/tutti/*/cgroup.freeze "
    "/sys/fs/cgroup/*/tutti/*/memory.limit_in_bytes /sys/fs/cgroup/*/tutti/*/pids.max "
    "/sys/fs/cgroup/*/tutti/*/cpu.cfs_quota_us /sys/fs/cgroup/*/tutti/*/devices.allow "
    "/sys/fs/cgroup/*/tutti/*/freezer.state";

// Before this word.
std::size_t number_before(const std::string& text, const std::string& word) {
  const std::size_t end = text.find(" " + word);
  if (end == std::string::npos) return 0;
  const std::size_t begin = text.find_last_not_of("0123456789", end - 1) + 1;
  return begin == end ? 0 : std::stoul(text.substr(begin, end - begin));
}

// Calls that need no rights: which keys the session has, and faults of its own, unless everybody may have
// them.
std::string calls() {
  const std::string keys = std::to_string(SYS_keyctl) + ",0,-3,1";
  if (read_text("/proc/sys/vm/unprivileged_userfaultfd").starts_with('1')) return keys;
  return keys + " " + std::to_string(SYS_userfaultfd) + ",1";
}

// A page that the process has in its memory.
std::uint64_t page_of(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::uint64_t first = 0;
  maps >> std::hex >> first;
  return first / 4096;
}

// A disk of the machine that root may read.
dev_t some_disk() {
  std::error_code unknown;
  for (const auto& entry : fs::directory_iterator("/dev", unknown)) {
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) != 0 || !S_ISBLK(status.st_mode)) continue;
    if (std::ifstream(entry.path()).is_open()) return status.st_rdev;
  }
  return makedev(7, 0);
}

// Of the agent's folder what is a file, and not the job's own that others are let into.
std::string files_in(const std::string& folder, const std::string& beside) {
  std::string files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string().substr(folder.size() + 1);
    const bool is_plain = entry.is_regular_file() && !entry.is_symlink() && fs::file_size(entry.path()) > 0;
    if (is_plain && !path.starts_with(beside)) files += (files.empty() ? "" : " ") + path;
  }
  return files;
}

// What was tried and refused.
std::vector<std::string> closed_in(const Finished& tried) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(tried.out))
    if (line.starts_with("CLOSED: ")) names.push_back(line.substr(8));
  return names;
}

TEST_F(Isolation, AJobReachesNothingOfAnother) {
  // What is there for everybody to be tried.
  fs::copy_file("/usr/bin/id", accounts_.file("set-uid-id"));
  ASSERT_EQ(::chmod(accounts_.file("set-uid-id").c_str(), 04755), 0);
  ASSERT_EQ(::mknod(accounts_.file("disk").c_str(), S_IFBLK | 0666, some_disk()), 0);
  ASSERT_EQ(::chmod(accounts_.file("disk").c_str(), 0666), 0);
  fs::create_directories(accounts_.file("shipped"));
  write_text(accounts_.file("shipped/secret"), "secret\n");
  const std::string saved = accounts_.file("saved-where");
  write_text(saved, "");
  ASSERT_EQ(::chmod(saved.c_str(), 0666), 0);
  const std::string ada =
      submit("tutti-ada", {"--sync", accounts_.file("shipped"), "--env", "SECRET=secret"},
             "for f in /tmp /var/tmp /dev/shm $TUTTI_CHECKPOINT_DIR; do echo secret >$f/secret; done; "
             "cp /tmp/secret $TUTTI_CHECKPOINT_DIR/saved; echo secret >$TUTTI_PROGRESS_FILE; ipcmk -M 4096; "
             "echo secret; chmod -R a+rwX . $TUTTI_CHECKPOINT_DIR; echo $TUTTI_CHECKPOINT_DIR >" +
                 saved + "; exec sleep 1000");
  ASSERT_TRUE(eventually([&] { return has(read_text(saved), "/" + ada + "\n") && sleeper() != 0; }))
      << cluster_->tutti({"show", ada}).out;
  // Whatever the user has made of it, only he passes through to it. Here he has let everybody in.
  const std::string ada_saved = lines_of(read_text(saved)).at(0);
  ASSERT_EQ(::chmod(ada_saved.c_str(), 0700), 0);
  const std::string work = agent() + "/work/" + place_of(ada + ".0");
  const std::string places = agent() + "/places/" + place_of(ada + ".0");
  ASSERT_TRUE(fs::exists(places + "/tmp"));
  ASSERT_EQ(::chmod(work.c_str(), 0700), 0);
  const std::string memory =
      support::run({"nsenter", "-t", std::to_string(sleeper()), "-i", "ipcs", "-m"}).out;
  std::map<std::string, std::string> env{{"A", agent()},
                                         {"ADA", ada},
                                         {"ADA_PID", std::to_string(sleeper())},
                                         {"ADA_PAGE", std::to_string(page_of(sleeper()))},
                                         {"ADA_SAVED", ada_saved},
                                         {"ADA_WORK", work},
                                         {"ADA_PLACES", places},
                                         {"ADA_MEMORY", "0"},
                                         {"FILES", files_in(agent(), "work/" + ada)},
                                         {"HOME_OF_CLUSTER", cluster_->home()},
                                         {"HOST_TMP", cluster_->folder()},
                                         {"AGENT_PID", std::to_string(cluster_->agent("n1").pid())},
                                         {"SET_UID_ID", accounts_.file("set-uid-id")},
                                         {"DISK", accounts_.file("disk")},
                                         {"CALLS", calls()},
                                         {"CGROUPS", cgroup_files},
                                         {"LIMITS", limit_files}};
  for (const char* name : {"identity", "/spec", "/log."})
    EXPECT_TRUE(has(env["FILES"], name)) << env["FILES"];
  EXPECT_TRUE(has(memory, "4096")) << memory;
  std::vector<std::string> flags;
  for (const auto& [name, value] : env) flags.insert(flags.end(), {"--env", name + "=" + value});
  const auto tried = run("tutti-ben", flags, std::string(tries) + looks + attack);
  EXPECT_EQ(tried.exit_code, 0) << tried.err;
  EXPECT_FALSE(has(tried.out, "OPEN: ")) << tried.out;
  EXPECT_GT(number_before(tried.out, "cgroups and "), 0U) << "none of them is there to be tried";
  EXPECT_GT(number_before(tried.out, "limits were tried"), 0U) << "none of them is there to be tried";
  EXPECT_TRUE(tried.out.starts_with("all was tried\n") && tried.out.ends_with("all was tried\n"))
      << tried.err;
  EXPECT_EQ(cluster_->state(ada), "running");

  // Root reaches all of it, on the machine or where her rank is: else it says nothing that he does not.
  env["CONTROL"] = "yes";
  env["TUTTI_PROGRESS_FILE"] = rank_folder(ada) + "/said/progress";
  const std::string script = std::string(tries) + looks;
  const auto outside = support::run({"sh", "-c", script}, {.env = env, .stdout_to = ""});
  const auto inside = support::run({"nsenter", "-t", env["ADA_PID"], "-m", "-i", "sh", "-c", script},
                                   {.env = env, .stdout_to = ""});
  EXPECT_TRUE(has(outside.out, "all was tried") && has(inside.out, "all was tried"));
  for (const std::string& name : closed_in(outside))
    EXPECT_TRUE(has(inside.out, "OPEN: " + name + "\n")) << name << " is nothing that could be reached";
  EXPECT_EQ(cluster_->state(ada), "running");
  EXPECT_EQ(cluster_->tutti({"cancel", ada}).exit_code, 0);
  EXPECT_TRUE(eventually([&] { return nothing_is_left(); }));
}

// Segments of System V's memory on this machine, by whose they are.
std::size_t segments_of(uid_t user) {
  std::ifstream table("/proc/sysvipc/shm");
  std::size_t count = 0;
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    if (fields.size() > 7 && fields[7] == std::to_string(user)) ++count;
  }
  return count;
}

// It would be there for ever: it has no process that it ends with.
TEST_F(Isolation, MemoryThatAJobLeavesBehindGoesWithIt) {
  ASSERT_TRUE(as_login(ada_uid, "ipcmk -M 4096"));
  EXPECT_EQ(segments_of(ada_uid), 1U) << "which is what a login leaves";
  ASSERT_TRUE(as_login(ada_uid, "ipcs -m | awk '$3 ~ /ada|" + ada_id + "/ { print $2 }' | xargs ipcrm shm"));
  ASSERT_EQ(segments_of(ada_uid), 0U);
  const auto ran =
      run("tutti-ada", {}, "ipcmk -M 4096 -p 0666 && ipcmk -Q && ipcmk -S 1 && ipcs -m | grep -c 4096");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "\n1\n")) << ran.out;
  EXPECT_EQ(segments_of(ada_uid), 0U);
}

// The writer is outside of what keeps the rank from devices, and its memory bounded.
TEST_F(Isolation, TheOutputIsNoWayToWhatTheRankIsKeptFrom) {
  const std::string place = "/dev/shm/tutti-output-" + ada_id;
  for (const std::string& target : {place, std::string("/dev/full"), "/tmp/tutti-output-" + ada_id}) {
    const auto ran = run("tutti-ada", {"--output", target}, "echo mine");
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(has(ran.out, "tutti: cannot write " + target + ": on nodes where")) << ran.out;
  }
  EXPECT_FALSE(fs::exists(place));
}

// Processes that nothing ends, each of which holds a place of the machine's.
std::size_t writers_of(uid_t user) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string process = entry.path();
    if (read_text(process + "/comm") == "tutti-copy\n" &&
        has(read_text(process + "/status"), "\nUid:\t" + std::to_string(user) + "\t"))
      ++count;
  }
  return count;
}

TEST_F(Isolation, WhoseCopiesHangCostsNobodyElseTheNode) {
  start_cluster({"--cpus", "200"});
  const std::string own = accounts_.file("ada");
  fs::create_directory(own);
  ASSERT_EQ(::chown(own.c_str(), ada_uid, ada_uid), 0);
  write_text(own + "/out", "");
  const support::HungFile hung(own + "/out", support::HungFile::Answers::nothing);
  if (!hung.mounted()) GTEST_SKIP() << "needs /dev/fuse";
  const std::string id = submit("tutti-ada", {"--array", "0-69", "--output", own + "/out"}, "true");
  EXPECT_EQ(cluster_->tutti({"wait", "--array", id}).exit_code, 0);
  EXPECT_GE(writers_of(ada_uid), 64U);
  EXPECT_EQ(cluster_->node("n1").value("state", ""), "ready");
  const auto next = run("tutti-ada", {"--output", own + "/out"}, "echo said");
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(has(next.out, "too many copies of logs of the same account hang")) << next.out;
  const std::string bens = accounts_.file("ben");
  fs::create_directory(bens);
  ASSERT_EQ(::chown(bens.c_str(), support::ben_uid, support::ben_uid), 0);
  EXPECT_EQ(run("tutti-ben", {"--output", bens + "/out"}, "echo said").exit_code, 0);
  EXPECT_EQ(read_text(bens + "/out"), "said\n");
}

// Some of what the process may write to has these bytes in it.
bool memory_has(pid_t pid, const std::string& bytes) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::ifstream maps(process + "/maps");
  std::ifstream memory(process + "/mem", std::ios::binary);
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    char dash = '-';
    std::string rights;
    words >> std::hex >> first >> dash >> last >> rights;
    if (!rights.starts_with("rw")) continue;
    std::string content(last - first, '\0');
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(first));
    memory.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<std::size_t>(memory.gcount()));
    if (has(content, bytes)) return true;
  }
  return false;
}

TEST_F(Isolation, WhoWritesTheCopyOfTheLogHasSeenNoSecret) {
  const std::string value = "of ada, and of nobody else: " + ada_id;
  write_text(accounts_.file("value"), value);
  ASSERT_EQ(as("tutti-ada", {"secret", "set", "TOKEN", "--file", accounts_.file("value")}).exit_code, 0);
  const std::string own = accounts_.file("ada");
  fs::create_directory(own);
  ASSERT_EQ(::chown(own.c_str(), ada_uid, ada_uid), 0);
  const std::string gate = accounts_.file("gate");
  const std::string id = submit("tutti-ada", {"--secret", "TOKEN", "--output", own + "/out"},
                                "echo this-was-printed; " + until(gate, "true"));
  EXPECT_TRUE(eventually([&] { return has(read_text(own + "/out"), "this-was-printed"); }));
  std::size_t writers = 0;
  for (const pid_t pid : ranks()) {
    if (!has(read_text("/proc/" + std::to_string(pid) + "/comm"), "tutti-copy")) continue;
    ++writers;
    EXPECT_TRUE(memory_has(pid, "this-was-printed")) << "which it has written";
    EXPECT_FALSE(memory_has(pid, value));
  }
  EXPECT_EQ(writers, 1U);
  write_text(gate, "");
  EXPECT_EQ(cluster_->wait(id), 0);
}

}  // namespace
}  // namespace tutti
