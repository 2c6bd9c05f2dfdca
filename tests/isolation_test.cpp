// Ranks that run as the accounts of their users (`tutti agent --isolation user`): what they have, and what
// they may not be. What they do not reach: isolation_reach_test.cpp.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/isolated.hpp"
#include "support/pretender.hpp"
#include "support/stalled_disk.hpp"

namespace tutti {
namespace {

namespace fs = std::filesystem;

using support::ada_id;
using support::ada_uid;
using support::as_login;
using support::ben_id;
using support::ben_uid;
using support::eventually;
using support::has;
using support::Isolation;
using support::lines_of;
using support::mode_of;
using support::owner_of;
using support::PartsCluster;
using support::Pretender;
using support::read_text;
using support::until;
using support::write_text;

// ---- what they have

TEST_F(Isolation, ARankRunsAsItsUserWithWhatIsItsOwn) {
  const auto ran = run("tutti-ada", {"--env", "MINE=yes"},
                       "echo $(id -u) $(id -g) $HOME $USER $LOGNAME $SHELL $MINE; umask; "
                       "echo out >/dev/stdout; grep NoNewPrivs /proc/self/status; "
                       "touch $TUTTI_CHECKPOINT_DIR/saved /tmp/x /var/tmp/x /dev/shm/x && echo wrote; "
                       "env | grep -c ^PATH=/; env | grep -c TUTTI_HOME; ls /proc/self/fd | wc -l");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, ada_id + " " + ada_id + " /srv/ada tutti-ada tutti-ada /bin/sh yes\n0022\nout\n"))
      << ran.out;
  EXPECT_TRUE(has(ran.out, "NoNewPrivs:\t1\n")) << ran.out;
  // With the one that lists them.
  EXPECT_TRUE(has(ran.out, "wrote\n1\n0\n4\n")) << ran.out;
  const std::string jobs = agent() + "/checkpoints";
  std::vector<std::string> saved;
  for (const auto& entry : fs::recursive_directory_iterator(jobs))
    if (entry.path().filename() == "saved") saved.push_back(entry.path().parent_path());
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(owner_of(saved[0]), ada_uid);
  EXPECT_EQ(mode_of(saved[0]), mode_t{0700});
  EXPECT_TRUE(eventually([&] { return nothing_is_left(); }));
}

TEST_F(Isolation, RanksOfOneJobShareMemoryAndWhatTheySayIsShown) {
  const std::string gate = accounts_.file("gate");
  const std::string id =
      submit("tutti-ada", {"--ranks", "2"},
             "echo $RANK >/dev/shm/$RANK; until [ -f /dev/shm/0 -a -f /dev/shm/1 ]; do sleep "
             "0.05; done; echo step 3 >$TUTTI_PROGRESS_FILE; " +
                 until(gate, "exit 7"));
  EXPECT_TRUE(eventually([&] { return has(cluster_->tutti({"show", id}).out, "step 3"); }));
  write_text(gate, "");
  EXPECT_EQ(cluster_->wait(id), 7);
  EXPECT_TRUE(eventually([&] { return nothing_is_left(); }));
}

TEST_F(Isolation, AShippedFolderBelongsToTheJobsUser) {
  fs::create_directories(accounts_.file("shipped/deep"));
  write_text(accounts_.file("shipped/deep/input"), "from home\n");
  const auto ran =
      run("tutti-ada", {"--sync", accounts_.file("shipped")},
          "cat deep/input && echo more >deep/output && echo new >new && stat -c '%u %a' . deep new");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "from home\n" + ada_id + " 700\n" + ada_id + " 700\n" + ada_id + " 644\n") << ran.err;
  EXPECT_TRUE(eventually([&] { return nothing_is_left(); }));
}

TEST_F(Isolation, WhatOneLeavesBehindDoesNotKeepWhatOthersLeft) {
  const std::string gate = accounts_.file("gate");
  const std::string hers = submit("tutti-ada", {}, "echo x >/dev/shm/x; echo begun; " + until(gate, "true"));
  ASSERT_TRUE(eventually([&] { return has(cluster_->tutti({"logs", hers}).out, "begun"); }));
  const std::string place = agent() + "/places/" + place_of(hers + ".0");
  // In place of millions of files.
  const support::StalledDisk disk(place + "/var-tmp");
  if (!disk.mounted()) GTEST_SKIP() << "needs /dev/fuse";
  write_text(gate, "");
  EXPECT_EQ(cluster_->wait(hers), 0);
  EXPECT_EQ(run("tutti-ben", {}, "echo x | tee /tmp/x /dev/shm/x").exit_code, 0);
  EXPECT_TRUE(eventually([&] {
    const auto places = std::distance(fs::directory_iterator(agent() + "/places"), fs::directory_iterator());
    return memory_places().empty() && places == 1;
  }));
  EXPECT_TRUE(fs::exists(place));
}

TEST_F(Isolation, SecretsAreInMemoryThatTheRankAloneSees) {
  write_text(accounts_.file("value"), "of ada");
  const auto set = as("tutti-ada", {"secret", "set", "TOKEN", "--file", accounts_.file("value")});
  ASSERT_EQ(set.exit_code, 0) << set.err;
  const std::string gate = accounts_.file("gate");
  const std::string id =
      submit("tutti-ada", {"--ranks", "2", "--secret", "TOKEN"},
             "cd $TUTTI_SECRETS && stat -c '%u %a' TOKEN . && stat -f -c %T . && "
             "(touch x || echo read-only) 2>/dev/null && cat TOKEN && echo && pwd && cd / && " +
                 until(gate, "cat $TUTTI_SECRETS/TOKEN"));
  const auto said = [&] { return lines_of(cluster_->log(id, 0)); };
  ASSERT_TRUE(eventually([&] { return said().size() == 6; })) << cluster_->tutti({"show", id}).out;
  const auto lines = said();
  EXPECT_EQ(lines[0], ada_id + " 400");
  EXPECT_EQ(lines[1], ada_id + " 500");
  EXPECT_EQ(lines[2], "tmpfs");
  EXPECT_EQ(lines[3], "read-only");
  EXPECT_EQ(lines[4], "of ada");
  // It is a mount of the rank's own: there is nothing of it on the machine, nor for somebody else's job.
  for (const std::string& place : memory_places())
    for (const auto& entry : fs::recursive_directory_iterator(place))
      EXPECT_NE(entry.path().filename(), "TOKEN") << entry.path();
  EXPECT_FALSE(fs::exists(lines[5] + "/TOKEN"));
  EXPECT_NE(run("tutti-ben", {}, "cat " + lines[5] + "/TOKEN").exit_code, 0);
  EXPECT_NE(run("tutti-ben", {"--secret", "TOKEN"}, "true").exit_code, 0) << "it is hers";

  // Ranks keep theirs when their agent is another one.
  cluster_->agent("n1").signal(SIGKILL);
  cluster_->agent("n1").wait();
  ASSERT_TRUE(cluster_->start_agent("n1"));
  write_text(gate, "");
  EXPECT_EQ(cluster_->wait(id), 0);
  EXPECT_EQ(said().size(), 7U);
  EXPECT_TRUE(eventually([&] { return nothing_is_left(); }));
}

// ---- who they may not be

TEST_F(Isolation, RootAndServicesAreRefusedAndTheJobEnds) {
  const auto refused = cluster_->run({}, "id -u");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_FALSE(has(refused.out, "0\n"));
  EXPECT_TRUE(has(refused.err, "ranks do not run as the account root (uid 0)")) << refused.err;
  EXPECT_EQ(cluster_->node("n1").value("state", ""), "ready");
  EXPECT_EQ(run("tutti-ada", {}, "true").exit_code, 0) << "nobody else pays for it";
}

// A directory of a company's has other numbers than a machine alone.
TEST_F(Isolation, WhichNumbersPeopleHaveItsOperatorSays) {
  std::ofstream(accounts_.file("passwd"), std::ios::app) << "tutti-eve:x:1054323:54323::/:/bin/sh\n";
  const auto refused = run("tutti-eve", {}, "id -u");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_TRUE(has(refused.err, "above 60000 (`tutti agent --uids`)")) << refused.err;
  start_cluster({"--uids", "100000-2000000"});
  EXPECT_EQ(run("tutti-eve", {}, "id -u").out, "1054323\n");
  EXPECT_NE(run("tutti-ada", {}, "id -u").exit_code, 0);
}

TEST_F(Isolation, AJobWhoseUserHasNoAccountHereWaitsUntilItHasOne) {
  const std::string id = submit("tutti-eve", {}, "id -u");
  EXPECT_TRUE(eventually([&] {
    return has(cluster_->tutti({"show", id}).out, "there is no account tutti-eve on the node");
  })) << cluster_->tutti({"show", id}).out;
  EXPECT_EQ(cluster_->node("n1").value("state", ""), "ready") << "nothing is wrong with the node";
  const std::string eve = "tutti-eve:x:54323:54323::/:/bin/sh\n";
  std::ofstream(accounts_.file("passwd"), std::ios::app) << eve;
  EXPECT_EQ(cluster_->tutti({"release", id}).exit_code, 0);
  EXPECT_EQ(cluster_->wait(id), 0) << cluster_->tutti({"show", id}).out;
  EXPECT_TRUE(has(cluster_->tutti({"logs", id}).out, "54323"));
}

TEST_F(Isolation, AFileOfUsersNamesTheirAccountsAndIsReadAgain) {
  const std::string users = accounts_.file("users");
  write_text(users, "# who is who\nroot tutti-ben\n");
  ::chmod(users.c_str(), 0644);
  start_cluster({"--users", users});
  EXPECT_EQ(cluster_->run({"--workdir", "/", "--no-prefix"}, "id -u").out, ben_id + "\n");
  write_text(users, "root tutti-ada\n");
  EXPECT_EQ(cluster_->run({"--workdir", "/", "--no-prefix"}, "id -u").out, ada_id + "\n");
  write_text(users, "root ../etc/passwd\n");
  EXPECT_EQ(cluster_->run({"--workdir", "/", "--no-prefix"}, "id -u").out, ada_id + "\n")
      << "as it was before";
  EXPECT_TRUE(has(read_text(cluster_->file("agent-n1.err")), "line 1"));
}

// A directory of users on a machine that hangs: here a file of accounts that is a pipe.
TEST_F(Isolation, ADirectoryOfUsersThatDoesNotAnswerCostsNoNodeItsLease) {
  const std::string pipe = accounts_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0644), 0);
  ASSERT_EQ(::mount(pipe.c_str(), "/etc/passwd", nullptr, MS_BIND, nullptr), 0);
  const std::string id = submit("tutti-ada", {}, "id -u");
  EXPECT_TRUE(eventually([&] {
    return has(cluster_->tutti({"show", id}).out, "its directory of users does not answer");
  })) << cluster_->tutti({"show", id}).out;
  EXPECT_FALSE(has(read_text(cluster_->file("controller.err")), "lost"));
  EXPECT_EQ(::umount2("/etc/passwd", MNT_DETACH), 0);
  // Who waits for the pipe goes on; the job is tried again by itself.
  const int writer = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_GE(writer, 0);
  ::close(writer);
  cluster_->tutti({"resume", "n1"});
  // Who still waited in the pipe has read that there is nobody; then the job is held.
  EXPECT_TRUE(eventually([&] {
    cluster_->tutti({"release", id});
    return has(cluster_->tutti({"show", id}).out, "succeeded");
  })) << cluster_->tutti({"show", id}).out;
}

// ---- what they do not reach

// All that it may signal is its own: nobody else notices.
TEST_F(Isolation, WhoKillsAllThatHeMayKillsNobodyElse) {
  const std::string ada = submit("tutti-ada", {}, "exec sleep 1000");
  ASSERT_TRUE(cluster_->becomes(ada, "running"));
  const std::string ben = submit("tutti-ben", {"--restarts", "0"}, "kill -9 -1; exit 3");
  EXPECT_EQ(cluster_->wait(ben), 3);
  EXPECT_EQ(cluster_->state(ada), "running");
  EXPECT_EQ(cluster_->tutti({"cancel", ada}).exit_code, 0);
}

TEST_F(Isolation, ALinkInPlaceOfTheOutputLeadsWhereItsUserMayWrite) {
  const std::string victim = accounts_.file("victim");
  write_text(victim, "as it was\n");
  ASSERT_EQ(::chmod(victim.c_str(), 0600), 0);
  const std::string own = accounts_.file("ben");
  fs::create_directory(own);
  ASSERT_EQ(::chown(own.c_str(), ben_uid, ben_uid), 0);
  fs::create_symlink(victim, own + "/out");
  const auto linked = run("tutti-ben", {"--output", own + "/out"}, "echo mine");
  EXPECT_EQ(linked.exit_code, 0) << linked.err;
  EXPECT_EQ(read_text(victim), "as it was\n");
  EXPECT_TRUE(has(linked.out, "cannot write " + own + "/out: Permission denied")) << linked.out;
  fs::remove(own + "/out");
  EXPECT_EQ(run("tutti-ben", {"--output", own + "/out"}, "echo mine").exit_code, 0);
  EXPECT_EQ(read_text(own + "/out"), "mine\n");
  EXPECT_EQ(owner_of(own + "/out"), ben_uid);
  // Where only root may write nothing is made.
  EXPECT_EQ(run("tutti-ben", {"--output", accounts_.file("new")}, "echo mine").exit_code, 0);
  EXPECT_FALSE(fs::exists(accounts_.file("new")));
}

TEST_F(Isolation, WhatItSaysIsNotReadFromWhereItMayNotRead) {
  const std::string secret = accounts_.file("secret");
  write_text(secret, "a-secret-of-root\n");
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  const std::string id = submit(
      "tutti-ben", {},
      "ln -s " + secret + " $TUTTI_PROGRESS_FILE; ln " + secret + " $TUTTI_VERDICT_FILE; exec sleep 1000");
  ASSERT_TRUE(eventually([&] { return fs::is_symlink(rank_folder(id) + "/said/progress"); }));
  // As a file that the kernel lets everybody link to.
  std::error_code ignored;
  fs::create_hard_link(secret, rank_folder(id) + "/said/verdict", ignored);
  // A look at what it says comes with each heartbeat: one that was said later has been looked at.
  const std::string other = submit("tutti-ada", {}, "echo later >$TUTTI_PROGRESS_FILE; exec sleep 1000");
  ASSERT_TRUE(eventually([&] { return has(cluster_->tutti({"show", other}).out, "later"); }));
  EXPECT_FALSE(has(cluster_->tutti({"show", id}).out, "a-secret-of-root"));
  for (const std::string& job : {id, other}) EXPECT_EQ(cluster_->tutti({"cancel", job}).exit_code, 0);
  EXPECT_TRUE(cluster_->becomes(id, "cancelled"));
  EXPECT_FALSE(has(cluster_->tutti({"show", id}).out, "a-secret-of-root"));
}

// What a job may see of where its own memory lies, with the number of another job in place of its own, is
// where it lets its output be written, and where its user goes with a login: outside its own places.
TEST_F(Isolation, NobodyLaysAnythingWhereTheMemoryOfOthersWillBe) {
  const auto mounts =
      run("tutti-ben", {}, "sed -n 's/.* \\(.*\\)\\/shm \\/dev\\/shm .*/\\1/p' /proc/self/mountinfo");
  ASSERT_EQ(mounts.exit_code, 0) << mounts.err;
  ASSERT_TRUE(has(mounts.out, place_of("1.0") + "\n")) << mounts.out;
  const std::string before = "/dev/shm" + mounts.out.substr(0, mounts.out.find(place_of("1.0")));
  for (const std::string place : {"5.0", "5.1", "5.2"})
    EXPECT_EQ(run("tutti-ben", {"--output", before + place}, "true").exit_code, 0);
  EXPECT_TRUE(as_login(ben_uid, "[ -d " + fs::path(before).parent_path().string() + " ]"));
  EXPECT_FALSE(as_login(ben_uid, "touch " + before + "8.0"));
  const std::string ada = submit("tutti-ada", {}, "echo attempt $TUTTI_ATTEMPT; touch /dev/shm/mine");
  EXPECT_EQ(cluster_->wait(ada), 0);
  EXPECT_EQ(cluster_->tutti({"logs", "--no-prefix", ada}).out, "attempt 0\n");
  EXPECT_EQ(cluster_->node("n1").value("state", ""), "ready");
  EXPECT_EQ(memory_folders().size(), 1U);
}

// A folder with its number, which somebody else has been in.
TEST_F(Isolation, CheckpointsOfSomebodyElseAreNotHandedOver) {
  const std::string first = submit("tutti-ada", {}, "true");
  EXPECT_EQ(cluster_->wait(first), 0);
  const std::string above = fs::directory_iterator(agent() + "/checkpoints")->path();
  const std::string next = above + "/" + std::to_string(std::stoi(first) + 1);
  fs::create_directory(next);
  write_text(next + "/saved", "ada's");
  ASSERT_EQ(::chown(next.c_str(), ada_uid, ada_uid), 0);
  const auto refused = run("tutti-ben", {}, "ls $TUTTI_CHECKPOINT_DIR");
  EXPECT_EQ(refused.exit_code, 126) << refused.err;
  EXPECT_TRUE(has(refused.err, "somebody else's than the account tutti-ben's")) << refused.err;
  EXPECT_EQ(owner_of(next), ada_uid);
}

TEST_F(Isolation, WhatARankHadForItsWordsIsOutOfReachWhenItIsOver) {
  const std::string id = submit("tutti-ada", {}, "echo x >$(dirname $TUTTI_PROGRESS_FILE)/x");
  EXPECT_EQ(cluster_->wait(id), 0);
  const std::string said = rank_folder(id) + "/said";
  EXPECT_TRUE(eventually([&] { return !fs::exists(said) && fs::is_empty(agent() + "/removed"); }));
  EXPECT_FALSE(as_login(ada_uid, "echo more >" + said + "/x"));
  EXPECT_EQ(cluster_->tutti({"logs", id}).exit_code, 0) << "what tutti wrote is kept";
}

// As its user may with a login there: over what the rank says, and over its shipped folder.
TEST_F(Isolation, WhatSomebodyMountsOverHisFoldersKeepsNoAgentFromStarting) {
  fs::create_directories(accounts_.file("shipped"));
  write_text(accounts_.file("shipped/input"), "input\n");
  const std::string gate = accounts_.file("gate");
  const std::string id =
      submit("tutti-ada", {"--sync", accounts_.file("shipped")}, "cd /; echo begun; " + until(gate, "true"));
  ASSERT_TRUE(eventually([&] { return has(cluster_->tutti({"logs", id}).out, "begun"); }));
  const support::StalledDisk over_said(rank_folder(id) + "/said");
  const support::StalledDisk over_work(agent() + "/work/" + place_of(id + ".0"));
  if (!over_said.mounted() || !over_work.mounted()) GTEST_SKIP() << "needs /dev/fuse";
  cluster_->agent("n1").signal(SIGKILL);
  cluster_->agent("n1").wait();
  ASSERT_TRUE(cluster_->start_agent("n1")) << read_text(cluster_->file("agent-n1.err"));
  EXPECT_EQ(run("tutti-ben", {}, "echo runs").out, "runs\n");
  write_text(gate, "");
  EXPECT_EQ(cluster_->wait(id), 0);
}

// Jobs of both have the same numbers.
TEST_F(Isolation, WhatAJobHadForItselfIsNotThatOfTheSameNumberInAnotherCluster) {
  const std::string hers =
      submit("tutti-ada", {},
             "trap 'exit 0' TERM; for f in /tmp /var/tmp /dev/shm; do echo hers >$f/hers; done; echo begun; "
             "while :; do sleep 0.05; done");
  ASSERT_EQ(hers, "1");
  ASSERT_TRUE(eventually([&] { return has(cluster_->tutti({"logs", hers}).out, "begun"); }));
  cluster_->kill_controller();
  fs::create_directory(cluster_->file("away"));
  for (const char* part : {"store.db", "store.db-wal", "store.db-shm", "store.db.last"}) {
    std::error_code ignored;
    fs::rename(cluster_->data() + "/" + part, cluster_->file("away") + "/" + part, ignored);
  }
  ASSERT_TRUE(cluster_->start_controller()) << read_text(cluster_->file("controller.err"));
  EXPECT_TRUE(eventually([&] { return ranks().empty(); }));
  ASSERT_TRUE(cluster_->node_becomes("n1", "ready"));
  const std::string his = submit("tutti-ben", {}, "ls /tmp /var/tmp /dev/shm; touch /tmp/his /dev/shm/his");
  ASSERT_EQ(his, "1");
  EXPECT_EQ(cluster_->wait(his), 0) << cluster_->tutti({"show", his}).out;
  EXPECT_FALSE(has(cluster_->tutti({"logs", "--no-prefix", his}).out, "hers"));
  EXPECT_TRUE(eventually([&] { return nothing_is_left(); }));
}

std::size_t times(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// ---- folders for checkpoints where users may write

class SharedCheckpoints : public Isolation {
 protected:
  void SetUp() override {
    if (!accounts_.there()) GTEST_SKIP() << "needs root, and the right to mount";
    fs::create_directory(shared_);
    ASSERT_EQ(::chmod(shared_.c_str(), 01777), 0);
    start_cluster({"--checkpoints", shared_, "--keep-checkpoints", "30d"});
    jobs_ = shared_ + "/" + cluster_id();
  }

  std::string shared_ = accounts_.file("shared");
  std::string jobs_;  // above the folders of jobs
};

TEST_F(SharedCheckpoints, ALinkThatSomebodyWasFirstToMakeLeadsRootNowhere) {
  const std::string victim = accounts_.file("victim");
  for (int job = 1; job < 4; ++job) fs::create_directories(victim + "/" + std::to_string(job));
  ASSERT_TRUE(as_login(ada_uid, "ln -s " + victim + " " + jobs_));
  const std::string id = submit("tutti-ada", {}, "touch $TUTTI_CHECKPOINT_DIR/saved");
  EXPECT_TRUE(eventually([&] {
    return has(cluster_->tutti({"show", id}).out,
               ", for the checkpoints of this cluster, is a link or no folder");
  })) << cluster_->tutti({"show", id}).out;
  EXPECT_EQ(owner_of(victim + "/" + id), 0U);
  EXPECT_FALSE(fs::exists(victim + "/.begun"));
  fs::remove(jobs_);
  cluster_->tutti({"resume", "n1"});
  EXPECT_TRUE(eventually([&] {
    cluster_->tutti({"release", id});
    return cluster_->state(id) == "succeeded";
  })) << cluster_->tutti({"show", id}).out;
  EXPECT_EQ(owner_of(jobs_ + "/" + id), ada_uid);
  EXPECT_TRUE(fs::exists(jobs_ + "/" + id + "/saved"));
  EXPECT_EQ(mode_of(jobs_), mode_t{0711});
  EXPECT_FALSE(as_login(ada_uid, "mkdir " + jobs_ + "/" + std::to_string(std::stoi(id) + 1)))
      << "the folder of somebody's next job";
}

TEST_F(SharedCheckpoints, AMarkThatSomebodyHasMadeCostsNobodyWhatHeSaved) {
  fs::create_directory(jobs_);
  ASSERT_EQ(::chmod(jobs_.c_str(), 01777), 0);
  ASSERT_TRUE(as_login(ada_uid, "mkdir " + jobs_ + "/.ended"));
  const std::string id = submit("tutti-ben", {}, "touch $TUTTI_CHECKPOINT_DIR/saved");
  EXPECT_EQ(cluster_->wait(id), 0);
  ASSERT_TRUE(as_login(ada_uid, "cd " + jobs_ + "/.ended; rm -f " + id + "; touch -d '90 days ago' " + id));
  const auto looked = [&] {
    return times(read_text(cluster_->file("agent-n1.err")), "old checkpoints stay");
  };
  const std::size_t before = looked();
  EXPECT_EQ(run("tutti-ada", {}, "true").exit_code, 0);
  EXPECT_TRUE(eventually([&] { return looked() > before || !fs::exists(jobs_ + "/" + id); }));
  EXPECT_TRUE(fs::exists(jobs_ + "/" + id + "/saved"));
  EXPECT_TRUE(has(read_text(cluster_->file("agent-n1.err")), "nothing in it is believed"));
}

// She may move it, with what is in it, and may not remove it; root could.
TEST_F(SharedCheckpoints, WhatSomebodyElseHasInAFolderThatAJobTakesAlongStays) {
  const std::string hers = accounts_.file("ada");
  fs::create_directory(hers);
  ASSERT_EQ(::chown(hers.c_str(), ada_uid, ada_uid), 0);
  for (const std::string team : {"/shipped-along", "/saved-along"}) {
    ASSERT_TRUE(as_login(ada_uid, "mkdir " + hers + team + "; chmod 1777 " + hers + team));
    ASSERT_TRUE(as_login(ben_uid, "cd " + hers + team + "; mkdir his; echo work >his/work"));
  }
  fs::create_directories(accounts_.file("shipped"));
  write_text(accounts_.file("shipped/input"), "input\n");
  const std::string id =
      submit("tutti-ada", {"--sync", accounts_.file("shipped")},
             "mv " + hers + "/shipped-along . && mv " + hers +
                 "/saved-along $TUTTI_CHECKPOINT_DIR && touch $TUTTI_CHECKPOINT_DIR/saved");
  ASSERT_EQ(cluster_->wait(id), 0) << cluster_->tutti({"logs", id}).out;
  const std::string removed = agent() + "/removed";
  const auto left = [&] {
    std::vector<std::string> found;
    if (!fs::exists(removed)) return found;
    for (const auto& tree : fs::directory_iterator(removed)) {
      const std::string path = tree.path();
      if (path.find("/" + place_of(id + ".0")) != std::string::npos && !fs::exists(path + "/input"))
        found.push_back(path);
    }
    return found;
  };
  ASSERT_TRUE(eventually([&] { return left().size() == 1; }));
  EXPECT_EQ(read_text(left()[0] + "/shipped-along/his/work"), "work\n");
  ASSERT_TRUE(eventually([&] { return fs::exists(jobs_ + "/.ended/" + id); }));
  fs::last_write_time(jobs_ + "/.ended/" + id,
                      fs::file_time_type::clock::now() - std::chrono::hours(90 * 24));
  EXPECT_EQ(run("tutti-ada", {}, "true").exit_code, 0);
  EXPECT_TRUE(eventually([&] {
    return fs::exists(jobs_ + "/.removed/" + id) && !fs::exists(jobs_ + "/.removed/" + id + "/saved");
  }));
  EXPECT_EQ(read_text(jobs_ + "/.removed/" + id + "/saved-along/his/work"), "work\n");
  EXPECT_TRUE(eventually([&] {
    const std::string log = read_text(cluster_->file("agent-n1.err"));
    return times(log, "'his' in it is somebody else's (uid " + ben_id + ")") > 1;
  })) << read_text(cluster_->file("agent-n1.err"));
}

// ---- what goes on as with others

TEST_F(Isolation, ItIsCancelledAdoptedAndClearedAwayAsOthers) {
  const std::string deaf = "trap '' TERM; setsid sleep 1000 & sleep 1000";
  const std::string id = submit("tutti-ada", {"--grace", "100ms"}, deaf);
  ASSERT_TRUE(eventually([&] { return sleeper() != 0; }));
  cluster_->agent("n1").signal(SIGKILL);
  cluster_->agent("n1").wait();
  ASSERT_TRUE(cluster_->start_agent("n1")) << read_text(cluster_->file("agent-n1.err"));
  EXPECT_TRUE(has(read_text(cluster_->file("agent-n1.err")), "adopted rank " + id));
  EXPECT_EQ(cluster_->state(id), "running");
  EXPECT_FALSE(nothing_is_left()) << "its places stay with it";
  EXPECT_EQ(cluster_->tutti({"cancel", id}).exit_code, 0);
  EXPECT_TRUE(cluster_->becomes(id, "cancelled"));
  EXPECT_TRUE(eventually([&] { return ranks().empty() && nothing_is_left(); }));
}

TEST_F(Isolation, AKilledShimTakesItsRankAlong) {
  const std::string id = submit("tutti-ada", {"--restarts", "0"}, "setsid sleep 1000 & exec sleep 1000");
  ASSERT_TRUE(eventually([&] { return sleeper() != 0; }));
  for (const pid_t pid : ranks())
    if (has(read_text("/proc/" + std::to_string(pid) + "/comm"), "tutti-shim")) ::kill(pid, SIGKILL);
  EXPECT_TRUE(cluster_->becomes(id, "failed"));
  EXPECT_TRUE(eventually([&] { return ranks().empty() && nothing_is_left(); }));
}

TEST_F(Isolation, WhoCallsHimselfAShimKeepsNoAgentFromStartingAndIsTakenForNobodys) {
  const std::string done = submit("tutti-ben", {}, "true");
  EXPECT_EQ(cluster_->wait(done), 0);
  const std::string place = accounts_.file("pretender");
  for (const bool removed : {true, false}) {
    Pretender pretender(ada_uid, place, agent() + "/ranks/9.0.0");
    Pretender of_done(ada_uid, accounts_.file("another"), rank_folder(done));
    ASSERT_TRUE(pretender.began() && of_done.began());
    if (removed) fs::remove_all(place + "/x");
    if (!removed) write_text(place + "/x/identity", "");
    cluster_->agent("n1").signal(SIGTERM);
    cluster_->agent("n1").wait();
    ASSERT_TRUE(cluster_->start_agent("n1")) << read_text(cluster_->file("agent-n1.err"));
    EXPECT_EQ(run("tutti-ben", {}, "echo runs").out, "runs\n");
    EXPECT_TRUE(pretender.lives() && of_done.lives()) << "nobody is ended for that";
    fs::remove_all(place);
    fs::remove_all(accounts_.file("another"));
  }
  EXPECT_FALSE(has(read_text(cluster_->file("agent-n1.err")), "adopted rank"));
}

// ---- what it needs

TEST_F(Isolation, AFolderThatRanksCouldNotReachIsRefusedByName) {
  const auto refused = [&](const std::string& data) {
    return cluster_
        ->tutti({"agent", "--controller", cluster_->address(), "--join-token-file",
                 cluster_->data() + "/join.token", "--name", "n2", "--fake-gpus", "1xH100", "--data", data})
        .err;
  };
  EXPECT_TRUE(has(refused("/tmp/tutti-n2"), "lies where each job has a place of its own"));
  EXPECT_FALSE(fs::exists("/tmp/tutti-n2"));
  fs::create_directory(accounts_.file("closed"));
  ASSERT_EQ(::chmod(accounts_.file("closed").c_str(), 0700), 0);
  const std::string behind = refused(accounts_.file("closed") + "/n2");
  EXPECT_TRUE(has(behind, "may not pass through " + accounts_.file("closed"))) << behind;
  EXPECT_TRUE(has(behind, "--isolation none")) << behind;
}

TEST(IsolationFlags, WhatDoesNotGoTogetherIsRefused) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  const auto refused = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"agent", "--controller", cluster.address(), "--join-token-file",
                                 cluster.data() + "/join.token", "--name", "n2", "--fake-gpus", "1xH100"});
    const auto ended = cluster.tutti(flags);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_TRUE(has(refused({"--isolation", "maybe"}), "there is no isolation 'maybe'"));
  EXPECT_TRUE(has(refused({"--isolation", "none", "--users", "users"}), "--users says something"));
  EXPECT_TRUE(has(refused({"--isolation", "none", "--uids", "1-2"}), "--uids says something"));
  EXPECT_TRUE(has(refused({"--isolation", "container"}), "not run in containers yet"));
  if (::geteuid() == 0) return;
  EXPECT_TRUE(has(refused({"--isolation", "user"}), "only an agent of root's"));
}

// As in a container. That its agent was started with --isolation user is not enough.
TEST_F(Isolation, ANodeThatCannotDoAllThatTheClusterDemandsTakesNoWork) {
  const char* const cgroups = "/sys/fs/cgroup";
  ASSERT_EQ(::mount("none", cgroups, "tmpfs", 0, "mode=0755"), 0);
  start_cluster({});
  const std::string lack = "this agent may make no cgroups that keep devices from them";
  EXPECT_EQ(cluster_->node("n1").value("state", ""), "ready");
  EXPECT_TRUE(has(cluster_->node("n1").value("lacks", ""), lack));
  EXPECT_TRUE(has(cluster_->tutti({"nodes"}).out, lack)) << cluster_->tutti({"nodes"}).out;
  cluster_->kill_controller();
  ASSERT_TRUE(cluster_->start_controller({"--isolation", "user"}));
  EXPECT_TRUE(eventually([&] {
    return has(cluster_->node("n1").value("reason", ""),
               "it cannot do all that this cluster demands (--isolation user)");
  }));
  EXPECT_TRUE(has(cluster_->node("n1").value("reason", ""), lack));
  const std::string id = submit("tutti-ada", {}, "true");
  EXPECT_EQ(cluster_->state(id), "queued");
  EXPECT_EQ(::umount2(cgroups, MNT_DETACH), 0);
  cluster_->agent("n1").signal(SIGTERM);
  cluster_->agent("n1").wait();
  ASSERT_TRUE(cluster_->start_agent("n1")) << read_text(cluster_->file("agent-n1.err"));
  EXPECT_EQ(cluster_->wait(id), 0);
  EXPECT_EQ(cluster_->node("n1").value("lacks", ""), "");
}

TEST(IsolationFlags, ANodeThatPromisesLessThanTheClusterDemandsTakesNoWork) {
  PartsCluster cluster;
  ASSERT_TRUE(cluster.start_agent("n1"));
  EXPECT_TRUE(has(read_text(cluster.file("agent-n1.err")), "nothing keeps them from one another"));
  cluster.kill_controller();
  ASSERT_TRUE(cluster.start_controller({"--isolation", "user"}));
  EXPECT_TRUE(
      eventually([&] { return has(cluster.node("n1").value("reason", ""), "which this cluster demands"); }));
  const auto submitted = cluster.tutti({"run", "--detach", "--", "true"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_TRUE(has(cluster.tutti({"nodes"}).out, "--isolation user"));
  EXPECT_EQ(cluster.state("1"), "queued");
  cluster.kill_controller();
  ASSERT_TRUE(cluster.start_controller());
  EXPECT_EQ(cluster.tutti({"wait", "1"}).exit_code, 0);
  const auto refused = cluster.tutti({"controller", "--data", cluster.data(), "--isolation", "container"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "not run in containers yet")) << refused.err;
}

}  // namespace
}  // namespace tutti
