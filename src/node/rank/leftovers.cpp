#include "node/rank/leftovers.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/files/files.hpp"
#include "base/text.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

// Longer ones are no shim's: the file would be refused, and so the process passed over.
constexpr std::size_t command_bytes_max = 65'536;
// Of shims (shim.cpp), and of files of any version: "tutti", "tutti-0.9".
constexpr std::string_view program_name = "tutti";

// The pid of a shim that has gone is nobody else's while its session has members; if it is, they are
// strangers.
bool is_taken_by_another(const ShimProcess& shim) {
  const auto process = read_process(shim.pid);
  return process && process->start_time != shim.start_time;
}

}  // namespace

bool kill_leftovers(const Hold& hold, const ShimProcess& shim) {
  const bool held = hold.exists();
  if (held) hold.kill();
  std::vector<pid_t> family;
  if (!held && shim.pid > 0 && !is_taken_by_another(shim)) family = session_of(shim.pid);
  // Also those that have left the cgroup, as a rank can that is root: once the shim has gone, nobody knows
  // them.
  if (is_alive(shim)) {
    const auto descendants = descendants_of(shim.pid);
    family.insert(family.end(), descendants.begin(), descendants.end());
  }
  for (const pid_t pid : family) kill(pid, SIGKILL);
  // Who writes a copy holds nothing of the rank's, and may hang where nobody can end it.
  const auto counts = [](pid_t pid) { return process_name(pid) != copy_writer_name; };
  return (!held || hold.empty()) && std::none_of(family.begin(), family.end(), counts);
}

std::multimap<std::string, ShimProcess> shims_by_folder(const std::string& above) {
  std::multimap<std::string, ShimProcess> shims;
  const std::string own_name = process_name(getpid());
  for (const pid_t pid : all_processes()) {
    // The words of a process are in its memory, which may wait for a disk that does not answer, and its
    // readers with it; its name is the kernel's.
    const std::string name = process_name(pid);
    if (name == copy_writer_name || (name != own_name && !name.starts_with(program_name))) continue;
    const auto line = files::read_file("/proc/" + std::to_string(pid) + "/cmdline", command_bytes_max);
    if (!line || !*line) continue;
    const auto words = split(**line, '\0');
    if (words.size() < 3 || words[1] != "shim" || !words[2].starts_with(above + "/")) continue;
    const auto process = read_process(pid);
    const ShimProcess shim{.pid = pid, .start_time = process ? process->start_time : 0};
    if (process && is_alive(shim)) shims.emplace(words[2], shim);
  }
  return shims;
}

std::vector<ShimProcess> shims_below(const std::string& folder) {
  std::vector<ShimProcess> shims;
  for (const auto& [rank, shim] : shims_by_folder(folder)) shims.push_back(shim);
  return shims;
}

void kill_shim(const ShimProcess& shim) {
  if (is_alive(shim)) kill(shim.pid, SIGKILL);
}

void wake_shim(const ShimProcess& shim) {
  const auto process = read_process(shim.pid);
  if (process && process->start_time == shim.start_time && (process->state == 'T' || process->state == 't'))
    kill(shim.pid, SIGCONT);
}

}  // namespace tutti::rank
