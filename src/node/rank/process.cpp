#include "node/rank/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"

namespace tutti::rank {
namespace {

constexpr std::size_t status_bytes_max = 4096;
constexpr std::size_t children_bytes_max = std::size_t{16} << 20;

std::string proc_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The entries of a folder whose names are numbers: processes of /proc, threads of /proc/PID/task.
std::vector<pid_t> numbers_in_folder(const std::string& path) {
  std::vector<pid_t> numbers;
  const auto names = files::list_folder(path);
  if (!names || !*names) return numbers;
  for (const auto& name : **names)
    if (const auto number = number_in<pid_t>(name)) numbers.push_back(*number);
  return numbers;
}

std::string content_of(const std::string& path, std::size_t bytes_max) {
  auto content = files::read_file(path, bytes_max);
  return content && *content ? **std::move(content) : std::string();
}

constexpr const char* oom_score_path = "/proc/self/oom_score_adj";

int oom_score() { return number_in<int>(trim(content_of(oom_score_path, status_bytes_max))).value_or(0); }

void write_oom_score(int score) {
  const files::FileDescriptor file(open(oom_score_path, O_WRONLY | O_CLOEXEC));
  const std::string text = std::to_string(score);
  [[maybe_unused]] const ssize_t written = write(file.get(), text.data(), text.size());
}

bool kernel_lists_children(pid_t pid) {
  const auto listed =
      files::read_file(proc_of(pid) + "/task/" + std::to_string(pid) + "/children", children_bytes_max);
  return listed && *listed;
}

// One that was met below another.
struct Met {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // 0: it was reaped before it could be looked at
  bool ended = true;

  friend bool operator==(const Met&, const Met&) = default;
};

Met look_at(pid_t pid) {
  const auto status = read_process(pid);
  if (!status) return {.pid = pid};
  return {.pid = pid, .start_time = status->start_time, .ended = status->ended()};
}

// Parents first.
std::vector<Met> met_below(pid_t ancestor, const AppendChildren& append_children_of) {
  std::vector<pid_t> family{ancestor};
  for (std::size_t at = 0; at < family.size(); ++at) append_children_of(pid_t{family[at]}, family);
  std::vector<Met> met;
  for (std::size_t at = 1; at < family.size(); ++at) met.push_back(look_at(family[at]));
  return met;
}

std::vector<Met> met_by_scan(pid_t ancestor) {
  std::vector<std::pair<pid_t, pid_t>> parents;
  for (const pid_t pid : all_processes())
    if (const auto status = read_process(pid)) parents.emplace_back(pid, status->parent);
  return met_below(ancestor, [&parents](pid_t member, std::vector<pid_t>& family) {
    for (const auto& [child, parent] : parents)
      if (parent == member) family.push_back(child);
  });
}

std::vector<Met> met_below(pid_t ancestor) {
  return kernel_lists_children(ancestor) ? met_below(ancestor, append_children) : met_by_scan(ancestor);
}

std::vector<SeenProcess> running_of(const std::vector<Met>& met) {
  std::vector<SeenProcess> running;
  for (const Met& member : met)
    if (!member.ended) running.push_back({.pid = member.pid, .start_time = member.start_time});
  return running;
}

std::vector<pid_t> pids_of(const std::vector<SeenProcess>& processes) {
  std::vector<pid_t> pids;
  pids.reserve(processes.size());
  for (const SeenProcess& process : processes) pids.push_back(process.pid);
  return pids;
}

// A list of children out of which one is reaped while it is read may lack others: who was listed is looked at
// afterwards, and would not be there.
Family family_in(const std::vector<Met>& first, const std::vector<Met>& second) {
  return {.running = running_of(second), .settled = first == second};
}

}  // namespace

// A process is called as its first thread is, whichever thread says it; prctl names the one that calls it.
void set_process_name(std::string_view name) {
  const files::FileDescriptor first(open("/proc/self/comm", O_WRONLY | O_CLOEXEC));
  if (first.valid() && write(first.get(), name.data(), name.size()) == static_cast<ssize_t>(name.size()))
    return;
  prctl(PR_SET_NAME, std::string(name).c_str());
}

std::string process_name(pid_t pid) {
  return std::string(trim(content_of(proc_of(pid) + "/comm", status_bytes_max)));
}

std::optional<ProcessStatus> read_process(pid_t pid) {
  const std::string content = content_of(proc_of(pid) + "/stat", status_bytes_max);
  // The second field is the program's name in brackets, which may itself hold blanks and brackets.
  const std::size_t name_end = content.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= content.size()) return std::nullopt;
  const auto fields = split(std::string_view(content).substr(name_end + 2), ' ');
  constexpr std::size_t parent_index = 1;
  constexpr std::size_t session_index = 3;
  constexpr std::size_t threads_index = 17;
  constexpr std::size_t start_time_index = 19;
  constexpr std::size_t exit_signal_index = 35;
  if (fields.size() <= exit_signal_index || fields[0].size() != 1) return std::nullopt;
  const auto parent = number_in<pid_t>(fields[parent_index]);
  const auto start_time = number_in<std::uint64_t>(fields[start_time_index]);
  const auto session = number_in<pid_t>(fields[session_index]);
  const auto threads = number_in<std::int64_t>(fields[threads_index]);
  const auto exit_signal = number_in<int>(fields[exit_signal_index]);
  if (!parent || !session || !start_time || !threads || !exit_signal) return std::nullopt;
  return ProcessStatus{.state = fields[0][0],
                       .parent = *parent,
                       .session = *session,
                       .start_time = *start_time,
                       .threads = *threads,
                       .exit_signal = *exit_signal};
}

std::optional<uid_t> user_of(pid_t pid) {
  const std::string path = proc_of(pid) + "/status";
  const files::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // It stands near the beginning, and the groups, which may be thousands, behind it.
  std::array<std::byte, status_bytes_max> buffer{};
  const auto count = files::read_some(file.get(), buffer, path);
  if (!count) return std::nullopt;
  for (const auto line : split({reinterpret_cast<const char*>(buffer.data()), *count}, '\n')) {
    if (!line.starts_with("Uid:")) continue;
    const auto ids = split(line, '\t');
    return ids.size() > 2 ? number_in<uid_t>(ids[2]) : std::nullopt;
  }
  return std::nullopt;
}

// The descriptor holds on to one process: what is read after it was opened is true of that one. Where there
// is none to be had, somebody is to end all the same.
bool signal_process(const SeenProcess& process, int signal) {
  const files::FileDescriptor held(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!held.valid() && errno == ESRCH) return false;
  const auto status = read_process(process.pid);
  if (!status || status->start_time != process.start_time) return false;
  return held.valid() ? syscall(SYS_pidfd_send_signal, held.get(), signal, nullptr, 0) == 0
                      : kill(process.pid, signal) == 0;
}

Duration since_start(std::uint64_t start_time) {
  struct timespec now {};
  const long ticks = sysconf(_SC_CLK_TCK);
  if (ticks <= 0 || clock_gettime(CLOCK_MONOTONIC, &now) != 0) return {};
  const Duration began = Duration(1s) / ticks * static_cast<Duration::rep>(start_time);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) - began;
}

std::vector<pid_t> all_processes() { return numbers_in_folder("/proc"); }

// Each thread of a process has children of its own.
void append_children(pid_t parent, std::vector<pid_t>& children) {
  const std::string threads = proc_of(parent) + "/task";
  for (const pid_t thread : numbers_in_folder(threads)) {
    const std::string listed =
        content_of(threads + "/" + std::to_string(thread) + "/children", children_bytes_max);
    for (const auto word : split(listed, ' '))
      if (const auto child = number_in<pid_t>(word)) children.push_back(*child);
  }
}

std::vector<pid_t> descendants_of(pid_t ancestor) { return pids_of(running_of(met_below(ancestor))); }

std::vector<pid_t> descendants_by_scan(pid_t ancestor) { return pids_of(running_of(met_by_scan(ancestor))); }

Family family_of(pid_t ancestor) {
  const auto first = met_below(ancestor);
  return family_in(first, met_below(ancestor));
}

Family family_of(pid_t ancestor, const AppendChildren& append_children_of) {
  const auto first = met_below(ancestor, append_children_of);
  return family_in(first, met_below(ancestor, append_children_of));
}

void raise_oom_score(int score) {
  if (oom_score() < score) write_oom_score(score);
}

void lower_oom_score(int score) {
  if (oom_score() > score) write_oom_score(score);
}

std::vector<SeenProcess> session_of(pid_t leader) {
  std::vector<SeenProcess> members;
  for (const pid_t pid : all_processes()) {
    const auto status = read_process(pid);
    if (status && status->session == leader && pid != leader && !status->ended())
      members.push_back({.pid = pid, .start_time = status->start_time});
  }
  return members;
}

}  // namespace tutti::rank
