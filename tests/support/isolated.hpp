// A cluster whose agent runs ranks as the accounts of their users (`tutti agent --isolation user`), two of
// them: ada and ben. Needs root, because it is about becoming somebody else; the accounts are this test's
// alone.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti::support {

// Of this test's own: one of them kills all that is its user's on this machine.
inline const uid_t ada_uid = 20'000 + 2 * (static_cast<uid_t>(::getpid()) % 20'000);
inline const uid_t ben_uid = ada_uid + 1;
inline const std::string ada_id = std::to_string(ada_uid);
inline const std::string ben_id = std::to_string(ben_uid);

// This process, and what it starts, has accounts of its own beside those of the machine: nothing is left of
// them when it ends.
class Accounts {
 public:
  Accounts() {
    if (::geteuid() != 0 || ::unshare(CLONE_NEWNS) != 0) return;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    std::string path = "/var/lib/tutti-isolation-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return;
    folder_ = path;
    ::chmod(path.c_str(), 0755);
    const std::string own = "tutti-ada:x:" + ada_id + ":" + ada_id +
                            "::/srv/ada:/bin/sh\ntutti-ben:x:" + ben_id + ":" + ben_id +
                            "::/srv/ben:/bin/sh\n";
    write_text(file("passwd"), read_text("/etc/passwd") + own);
    // As whom a command is given.
    for (const std::string name : {"tutti-ada", "tutti-ben", "tutti-eve"})
      write_text(file("passwd." + name), name + ":x:0:0::/root:/bin/sh\n");
    there_ = ::mount(file("passwd").c_str(), "/etc/passwd", nullptr, MS_BIND, nullptr) == 0;
  }
  Accounts(const Accounts&) = delete;
  Accounts& operator=(const Accounts&) = delete;
  ~Accounts() {
    if (there_) ::umount2("/etc/passwd", MNT_DETACH);
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  bool there() const { return there_; }
  // Where everybody may go, below none of the places that each job has for itself.
  const std::string& folder() const { return folder_; }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
  bool there_ = false;
};

class Isolation : public testing::Test {
 protected:
  void SetUp() override {
    if (!accounts_.there()) GTEST_SKIP() << "needs root, and the right to mount";
    start_cluster({});
  }

  void TearDown() override {
    if (!cluster_) return;
    EXPECT_TRUE(eventually([&] { return ranks().empty(); }));
    for (const pid_t pid : ranks()) ::kill(pid, SIGKILL);
    clear_memory();
  }

  void clear_memory() const {
    for (const std::string& folder : memory_folders()) std::filesystem::remove_all(folder);
  }

  void start_cluster(std::vector<std::string> agent_flags) {
    if (cluster_) clear_memory();
    cluster_.reset();
    cluster_ = std::make_unique<PartsCluster>(PartsOptions{.data = "",
                                                           .controller_flags = {},
                                                           .agent_flags = std::move(agent_flags),
                                                           .isolation = "user",
                                                           .agent_folders = accounts_.file("nodes")});
    std::filesystem::create_directories(accounts_.file("nodes"));
    ASSERT_TRUE(cluster_->start_agent("n1")) << read_text(cluster_->file("agent-n1.err"));
  }

  // `tutti WORDS`, given by that user.
  Finished as(const std::string& user, const std::vector<std::string>& words) const {
    std::vector<std::string> all{"unshare",
                                 "-m",
                                 "sh",
                                 "-c",
                                 "mount --bind \"$0\" /etc/passwd && exec \"$@\"",
                                 accounts_.file("passwd." + user),
                                 tutti_program};
    all.insert(all.end(), words.begin(), words.end());
    return support::run(all, {.env = cluster_->env(), .stdout_to = ""});
  }
  Finished run(const std::string& user, std::vector<std::string> flags, const std::string& script) const {
    return as(user, words_of("run", std::move(flags), script));
  }
  std::string submit(const std::string& user, std::vector<std::string> flags,
                     const std::string& script) const {
    flags.insert(flags.begin(), "--detach");
    const auto submitted = run(user, std::move(flags), script);
    EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
    return submitted.out.substr(0, submitted.out.find('\n'));
  }
  static std::vector<std::string> words_of(const char* command, std::vector<std::string> flags,
                                           const std::string& script) {
    std::vector<std::string> words{command, "--no-prefix", "--workdir", "/"};
    if (std::find(flags.begin(), flags.end(), "--sync") != flags.end()) words.resize(2);
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "sh", "-c", script});
    return words;
  }

  std::string agent() const { return cluster_->agent_folder("n1"); }
  std::string cluster_id() const {
    const std::string told = read_text(cluster_->file("controller.err"));
    const std::size_t at = told.find("cluster ") + 8;
    return told.substr(at, told.find(':', at) - at);
  }
  // As what an attempt has on a node is called.
  std::string place_of(const std::string& attempt) const { return attempt + "." + cluster_id().substr(0, 8); }
  std::string rank_folder(const std::string& job) const { return agent() + "/ranks/" + job + ".0.0"; }
  // The shims and ranks on the node, and all that these have started.
  std::vector<pid_t> ranks() const { return processes_naming(agent() + "/ranks/"); }
  // The folder that this agent has in the machine's /dev/shm, and what lies there in names that begin as its.
  std::vector<std::string> memory_folders() const {
    struct stat place {};
    EXPECT_EQ(::stat(agent().c_str(), &place), 0);
    const std::string prefix =
        "tutti-" + std::to_string(place.st_dev) + "." + std::to_string(place.st_ino) + "-";
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
    return found;
  }
  // What it has there for attempts.
  std::vector<std::string> memory_places() const {
    std::vector<std::string> found;
    for (const std::string& folder : memory_folders())
      for (const auto& attempt : std::filesystem::directory_iterator(folder)) found.push_back(attempt.path());
    return found;
  }
  bool nothing_is_left() const {
    return std::filesystem::is_empty(agent() + "/places") && std::filesystem::is_empty(agent() + "/work") &&
           memory_places().empty();
  }
  // The rank of a running job that waits in `sleep`.
  pid_t sleeper() const {
    for (const pid_t pid : ranks())
      if (has(read_text("/proc/" + std::to_string(pid) + "/comm"), "sleep")) return pid;
    return 0;
  }

  Accounts accounts_;
  std::unique_ptr<PartsCluster> cluster_;
};

inline uid_t owner_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_uid : static_cast<uid_t>(-1);
}
inline mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// Whatever that user has on the node without any job: a login there, or a disk that he shares with it.
inline bool as_login(uid_t user, const std::string& script) {
  const std::string id = std::to_string(user);
  return run({"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "sh", "-ec", script}).exit_code == 0;
}

}  // namespace tutti::support
