#include "node/rank/leftovers.hpp"

#include <signal.h>
#include <unistd.h>

#include "base/files/files.hpp"
#include "base/text.hpp"
#include "node/rank/process.hpp"

namespace tutti::rank {
namespace {

// Longer ones are no shim's: the file would be refused, and so the process passed over.
constexpr std::size_t command_bytes_max = 65'536;
constexpr std::size_t name_bytes_max = 64;
// Of shims (shim.cpp), and of files of any version: "tutti", "tutti-0.9".
constexpr std::string_view program_name = "tutti";

// With its line's end; "" of a process that has gone.
std::string name_of(pid_t pid) {
  auto name = files::read_file("/proc/" + std::to_string(pid) + "/comm", name_bytes_max);
  return name && *name ? **std::move(name) : "";
}

// The pid of a shim that has gone is nobody else's while its session has members; if it is, they are
// strangers.
bool is_taken_by_another(const ShimProcess& shim) {
  const auto process = read_process(shim.pid);
  return process && process->start_time != shim.start_time;
}

}  // namespace

bool kill_leftovers(const Hold& hold, const ShimProcess& shim) {
  if (hold.exists()) {
    hold.kill();
    return hold.empty();
  }
  if (shim.pid <= 0 || is_taken_by_another(shim)) return true;
  auto family = session_of(shim.pid);
  if (is_alive(shim)) {
    const auto descendants = descendants_of(shim.pid);
    family.insert(family.end(), descendants.begin(), descendants.end());
  }
  for (const pid_t pid : family) kill(pid, SIGKILL);
  return family.empty();
}

std::multimap<std::string, ShimProcess> shims_by_folder(const std::string& above) {
  std::multimap<std::string, ShimProcess> shims;
  const std::string own_name = name_of(getpid());
  for (const pid_t pid : all_processes()) {
    // The words of a process are in its memory, which may wait for a disk that does not answer, and its
    // readers with it; its name is the kernel's.
    if (const std::string name = name_of(pid); name != own_name && !name.starts_with(program_name)) continue;
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
