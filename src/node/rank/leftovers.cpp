#include "node/rank/leftovers.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "node/rank/cgroups.hpp"
#include "node/rank/launch.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

namespace fs = std::filesystem;

// Longer ones are no shim's: the file would be refused, and so the process passed over.
constexpr std::size_t command_bytes_max = 65'536;
// Of shims (shim.cpp), and of files of any version: "tutti", "tutti-0.9".
constexpr std::string_view program_name = "tutti";
// How the path of a rank's cgroup goes on, wherever this machine has its cgroups (cgroup_prefix).
constexpr std::string_view hold_place = "/tutti/tutti-";
// What the kernel says behind the name of a file that was removed, or replaced by another one.
constexpr std::string_view removed_mark = " (deleted)";
// Where an agent has the folders of its ranks, in its own.
constexpr std::string_view ranks_name = "ranks";
constexpr int ancestors_max = 100;  // of a shim or an agent: who has more is a process of a rank

std::string process_path(pid_t pid) { return "/proc/" + std::to_string(pid); }

// What a process has from the kernel, whatever it says about itself.
struct Looks {
  std::string name;
  std::string file;  // the name of its program's; "" if that may not be seen
  std::string hold;  // the cgroup of a rank that it is in, "" for none
};

// The file is not asked for, only its name: its disk may not answer.
std::string file_of(pid_t pid) {
  std::error_code unseen;
  std::string name = fs::read_symlink(process_path(pid) + "/exe", unseen).filename().string();
  if (name.ends_with(removed_mark)) name.resize(name.size() - removed_mark.size());  // by another version
  return name;
}

// A shim stays who its agent is: its rank alone becomes somebody else. Whoever may run a process here can
// give it any words, and hold any folder. The kernel says this for the folder itself even of a process that
// hides.
bool is_of_this_user(pid_t pid) {
  struct stat status {};
  return stat(process_path(pid).c_str(), &status) == 0 && status.st_uid == geteuid();
}

Looks looks_of(pid_t pid) { return {.name = process_name(pid), .file = file_of(pid), .hold = hold_of(pid)}; }

// What a shim was started with. Its rank can neither change that nor take it away.
struct ShimWords {
  std::string folder;  // of its rank; "" if it is no shim
  std::string place;   // of its agent's folder; "" for shims of earlier versions
};

// Nothing if it could not be looked at. A rank can
// call itself as a shim is called, and run the same program: but it is in the cgroup that holds it, and its
// shim is not, unless all of this cluster runs in a rank of another one.
std::optional<ShimWords> told_by(pid_t pid, const Looks& own) {
  // The words of a process are in its memory, which may wait for a disk that does not answer, and its
  // readers with it; its name is the kernel's.
  const std::string name = process_name(pid);
  if (name.empty()) return std::nullopt;
  if (name == copy_writer_name || !is_of_this_user(pid) ||
      (name != own.name && name != own_program_name && !name.starts_with(program_name)))
    return ShimWords();
  const Looks looks = looks_of(pid);
  if (!looks.hold.empty() && looks.hold != own.hold) return ShimWords();
  if (!looks.file.empty() && looks.file != own.file && !looks.file.starts_with(program_name))
    return ShimWords();
  const auto words = words_of(pid);
  if (!words) return std::nullopt;
  if (words->size() < 3 || (*words)[1] != "shim") return ShimWords();
  // Behind the last word is an end, and so an empty one.
  return ShimWords{.folder = (*words)[2], .place = words->size() > 3 ? (*words)[3] : ""};
}

// Of its agent's folder; "" if it does not tell.
std::string place_told_by(pid_t shim) {
  const auto told = told_by(shim, looks_of(getpid()));
  return told && told->place != no_place ? told->place : "";
}

// The pid of a shim that has gone is nobody else's while its session has members; if it is, they are
// strangers.
bool is_taken_by_another(const ShimProcess& shim) {
  const auto process = read_process(shim.pid);
  return process && process->start_time != shim.start_time;
}

// A writer is a child that its shim has made without a signal for its end. No process of a rank is: the shim
// has inherited those.
bool is_copy_writer(pid_t pid, const ShimProcess& shim) {
  const auto process = read_process(pid);
  return process && process->parent == shim.pid && process->exit_signal == 0 &&
         process_name(pid) == copy_writer_name;
}

fs::path ranks_folder_of(const std::string& rank_folder) { return fs::path(rank_folder).parent_path(); }

// Each is read once in a look: a rank may have thousands of processes, one above the other.
class Parents {
 public:
  // 0 if it has gone.
  pid_t of(pid_t pid) {
    const auto [known, is_new] = known_.try_emplace(pid, 0);
    if (!is_new) return known->second;
    if (const auto process = read_process(pid)) known->second = process->parent;
    return known->second;
  }

 private:
  std::map<pid_t, pid_t> known_;
};

// One above it is such a one, or there are more than shims and agents have.
template <typename Is>
bool has_ancestor(pid_t pid, Parents& parents, const Is& is) {
  for (int above = 0; above < ancestors_max; ++above) {
    pid = parents.of(pid);
    if (pid <= 1) return false;
    if (is(pid)) return true;
  }
  return true;
}

// Shims start no shims: who descends from one of the same agent's is a process of its rank, and has the words
// that it likes.
bool is_of_a_rank(pid_t pid, const std::string& folder, const std::map<pid_t, std::string>& shims,
                  Parents& parents) {
  const fs::path ranks_folder = ranks_folder_of(folder);
  return has_ancestor(pid, parents, [&](pid_t ancestor) {
    const auto shim = shims.find(ancestor);
    return shim != shims.end() && ranks_folder_of(shim->second) == ranks_folder;
  });
}

}  // namespace

std::optional<std::vector<std::string>> words_of(pid_t pid) {
  const auto line = files::read_file(process_path(pid) + "/cmdline", command_bytes_max);
  if (!line || !*line) return std::nullopt;
  const auto words = split(**line, '\0');
  return std::vector<std::string>(words.begin(), words.end());
}

// In whichever hierarchy: what holds a rank and what limits it have nobody else in them.
std::string hold_of(pid_t pid) {
  const auto cgroups = files::read_file(process_path(pid) + "/cgroup", command_bytes_max);
  if (!cgroups || !*cgroups) return "";
  for (const auto line : split(**cgroups, '\n')) {
    const std::size_t at = line.find(hold_place);
    if (at == std::string_view::npos) continue;
    const std::size_t end = std::min(line.find('/', at + hold_place.size()), line.size());
    return std::string(line.substr(at, end - at));
  }
  return "";
}

bool kill_leftovers(const Hold& hold, const ShimProcess& shim) {
  const bool held = hold.exists();
  if (held) hold.kill();
  Family family{.running = {}, .settled = true};
  // Also those that have left the cgroup, as a rank can that is root: once the shim has gone, nobody knows
  // them.
  if (is_alive(shim)) family = family_of(shim.pid);
  if (!held && shim.pid > 0 && !is_taken_by_another(shim)) {
    const auto session = session_of(shim.pid);
    family.running.insert(family.running.end(), session.begin(), session.end());
  }
  for (const SeenProcess& one : family.running) signal_process(one, SIGKILL);
  // Who writes a copy holds nothing of the rank's, and may hang where nobody can end it.
  const auto counts = [&shim](const SeenProcess& one) { return !is_copy_writer(one.pid, shim); };
  return (!held || hold.empty()) && family.settled &&
         std::none_of(family.running.begin(), family.running.end(), counts);
}

std::multimap<std::string, ShimProcess> shims_by_folder(const std::string& above) {
  std::multimap<std::string, ShimProcess> shims;
  const Looks own = looks_of(getpid());
  std::map<pid_t, std::string> folders;
  for (const pid_t pid : all_processes()) {
    const auto told = told_by(pid, own);
    if (told && told->folder.starts_with(above + "/")) folders.emplace(pid, told->folder);
  }
  Parents parents;
  for (const auto& [pid, folder] : folders) {
    if (is_of_a_rank(pid, folder, folders, parents)) continue;
    const auto process = read_process(pid);
    const ShimProcess shim{.pid = pid, .start_time = process ? process->start_time : 0};
    if (process && is_alive(shim)) shims.emplace(folder, shim);
  }
  return shims;
}

bool is_of_ranks_of(pid_t pid, const std::string& node, const std::string& agent_folder) {
  const std::string hold = fs::path(hold_of(pid)).filename().string();
  const auto prefix = cgroup_prefix(node, agent_folder);
  if (prefix && !hold.empty()) {
    const auto cgroups = cgroups_of(*prefix);
    if (std::any_of(cgroups.begin(), cgroups.end(), [&](const RankCgroup& one) { return one.name == hold; }))
      return true;
  }
  return descends_from_shim_below(pid, agent_folder + "/" + std::string(ranks_name));
}

fs::path held_folder(pid_t shim, const std::string& rank_name) {
  if (!is_of_this_user(shim)) return {};
  const std::string folder = process_path(shim) + "/fd";
  const auto descriptors = files::list_folder(folder);
  if (!descriptors || !*descriptors) return {};
  for (const std::string& descriptor : **descriptors) {
    fs::path path = fs::path(folder) / descriptor;
    std::error_code unknown;
    const std::string name = fs::read_symlink(path, unknown).filename().string();
    // Behind the name of a folder that was removed the kernel says so.
    if (name == rank_name || name.starts_with(rank_name + " ")) return path;
  }
  return {};
}

// Two up from a folder that was removed is still where it was, as long as somebody holds that folder. Some
// file systems count no links.
bool agent_folder_is_gone(const fs::path& held) {
  std::error_code unknown;
  if (fs::read_symlink(held, unknown).parent_path().filename() != ranks_name) return false;
  const files::FileDescriptor home(
      open((held.string() + "/../..").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!home.valid() || fstat(home.get(), &status) != 0) return false;
  const fs::path place = fs::read_symlink("/proc/self/fd/" + std::to_string(home.get()), unknown);
  return status.st_nlink == 0 || place.string().ends_with(removed_mark);
}

bool began_in(pid_t shim, const std::string& agent_folder) {
  const std::string place = place_told_by(shim);
  return !place.empty() && place == folder_place(agent_folder);
}

bool began_elsewhere(pid_t shim, const std::string& agent_folder) {
  const std::string place = place_told_by(shim);
  return !place.empty() && place != folder_place(agent_folder);
}

bool is_anothers(const ShimProcess& shim, const std::string& folder) {
  const auto told = told_by(shim.pid, looks_of(getpid()));
  if (!told || told->folder == folder) return false;
  if (told->folder.empty()) return true;
  // The folder may have been moved, or have another name for this agent than for the one before it.
  const fs::path held = held_folder(shim.pid, fs::path(folder).filename().string());
  std::error_code unknown;
  return held.empty() || !fs::equivalent(held, folder, unknown);
}

std::vector<ShimProcess> shims_below(const std::string& folder) {
  std::vector<ShimProcess> shims;
  for (const auto& [rank, shim] : shims_by_folder(folder)) shims.push_back(shim);
  return shims;
}

bool descends_from_shim_below(pid_t pid, const std::string& folder) {
  std::set<pid_t> shims;
  for (const ShimProcess& shim : shims_below(folder)) shims.insert(shim.pid);
  Parents parents;
  return has_ancestor(pid, parents, [&](pid_t ancestor) { return shims.contains(ancestor); });
}

void kill_shim(const ShimProcess& shim) {
  signal_process({.pid = shim.pid, .start_time = shim.start_time}, SIGKILL);
}

void wake_shim(const ShimProcess& shim) {
  const auto process = read_process(shim.pid);
  if (process && process->start_time == shim.start_time && (process->state == 'T' || process->state == 't'))
    signal_process({.pid = shim.pid, .start_time = shim.start_time}, SIGCONT);
}

}  // namespace tutti::rank
