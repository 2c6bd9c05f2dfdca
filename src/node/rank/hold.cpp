#include "node/rank/hold.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "base/time.hpp"
#include "node/rank/cgroups.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

constexpr std::size_t members_bytes_max = std::size_t{16} << 20;
// A cgroup is busy for a moment after its last process has ended.
constexpr int remove_tries_max = 20;
constexpr Duration remove_again_after = 5ms;

files::FileDescriptor open_control(const std::string& path) {
  return files::FileDescriptor(open(path.c_str(), O_WRONLY | O_CLOEXEC));
}

// In one call, as the files of cgroups want it.
bool write_control(const files::FileDescriptor& file, std::string_view content) {
  return file.valid() &&
         pwrite(file.get(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size());
}

bool write_control(const std::string& path, std::string_view content) {
  return write_control(open_control(path), content);
}

bool is_there(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Nothing: it could not be read, and may have some.
std::optional<std::string> members_of(const std::string& folder) {
  auto content = files::read_file(folder + "/cgroup.procs", members_bytes_max);
  if (!content) return std::nullopt;
  return *content ? **std::move(content) : std::string();  // one that is gone has none
}

std::set<pid_t> pids_in(const std::string& cgroup) {
  std::set<pid_t> pids;
  const std::string members = members_of(cgroup).value_or("");
  for (const auto line : split(members, '\n')) {
    pid_t pid = 0;
    const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), pid);
    if (failure == std::errc() && pid > 1) pids.insert(pid);
  }
  return pids;
}

// Who is in it before he is looked at and behind it is the one that was looked at, and nobody who has got the
// pid of one that has gone.
void kill_all(const CgroupTree& tree) {
  for (const auto& cgroup : tree.folders) {
    std::vector<SeenProcess> seen;
    for (const pid_t pid : pids_in(cgroup))
      if (const auto status = read_process(pid))
        seen.push_back({.pid = pid, .start_time = status->start_time});
    const std::set<pid_t> still = pids_in(cgroup);
    for (const SeenProcess& one : seen)
      if (still.contains(one.pid)) signal_process(one, SIGKILL);
  }
}

}  // namespace

Hold::Hold(const std::string& name, const std::string& root) {
  // Without a name it would be the cgroup above those of all ranks.
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) return;
  // Version 2 alone, beside version 1, or version 1 alone.
  for (const std::string& mount : {root, root + "/unified"}) {
    if (!is_there(mount + "/cgroup.controllers")) continue;
    unified_ = true;
    folder_ = mount + "/tutti/" + name;
    return;
  }
  if (is_there(root + "/freezer/cgroup.procs")) folder_ = root + "/freezer/tutti/" + name;
}

bool Hold::exists() const { return possible() && is_there(folder_ + "/cgroup.procs"); }

bool Hold::make() const {
  if (!possible()) return false;
  const std::string parent = folder_.substr(0, folder_.rfind('/'));
  return files::make_folder(parent, 0755) && files::make_folder(folder_, 0755) && exists();
}

// Born there, the child does not have to be moved, for which the kernel would stop all forks of the machine.
Hold::Forked Hold::fork_under() const {
  if (unified_) {
    const files::FileDescriptor folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    clone_args arguments{};
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<__u64>(folder.get());
    if (folder.valid()) {
      const auto child = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof arguments));
      if (child >= 0) return {.pid = child, .held = child == 0};
    }
  }
  const pid_t child = fork();
  return {.pid = child, .held = child == 0 && enter()};
}

bool Hold::enter() const { return possible() && write_control(folder_ + "/cgroup.procs", "0"); }

// Of processes that their first thread has left the kernel's own kill signals that thread alone, which is no
// more: they live on, and are killed by their pids.
//
// In the freezer nobody forks while the others are killed; a frozen process dies when it thaws. A rank may
// have made cgroups inside its own and have gone there, or have frozen them. Who has no descriptor left to
// thaw with must not freeze: whatever fails behind that, nobody stays frozen.
void Hold::kill() const {
  if (!exists()) return;
  if (unified_ && write_control(folder_ + "/cgroup.kill", "1")) {
    if (!empty()) kill_all(cgroup_tree(folder_));
    return;
  }
  const std::string freezer = unified_ ? "/cgroup.freeze" : "/freezer.state";
  const char* thawed = unified_ ? "0" : "THAWED";
  const files::FileDescriptor own = open_control(folder_ + freezer);
  write_control(own, unified_ ? "1" : "FROZEN");
  const auto tree = cgroup_tree(folder_);
  kill_all(tree);
  write_control(own, thawed);
  for (const auto& cgroup : tree.folders)
    if (cgroup != folder_) write_control(cgroup + freezer, thawed);
}

// What waits to be reaped is still listed in version 1, but holds nothing any more. What cannot be read may
// hold somebody: whoever asks looks again.
bool Hold::empty() const {
  if (!exists()) return true;
  if (!unified_) {
    const auto tree = cgroup_tree(folder_);
    return tree.whole && std::all_of(tree.folders.begin(), tree.folders.end(), [](const std::string& cgroup) {
             const auto members = members_of(cgroup);
             return members && members->empty();
           });
  }
  const auto events = files::read_file(folder_ + "/cgroup.events", members_bytes_max);
  if (!events) return false;
  return !*events || (*events)->find("populated 0") != std::string::npos;
}

bool Hold::remove() const {
  if (!possible()) return true;
  for (int tried = 0; tried < remove_tries_max; ++tried) {
    if (remove_cgroup(folder_)) return true;
    if (!empty()) return false;
    std::this_thread::sleep_for(remove_again_after);
  }
  return false;
}

}  // namespace tutti::rank
