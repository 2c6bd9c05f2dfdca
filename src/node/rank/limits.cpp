#include "node/rank/limits.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "node/rank/cgroups.hpp"

namespace tutti::rank {
namespace {

constexpr std::int64_t period_us = 100'000;
// What all ranks weigh together, beside each other process of the machine: as one on each CPU. So an agent
// has its part of a CPU, however many processes ranks have, in however many sessions.
constexpr std::int64_t shares_of_cpu = 1024;
constexpr std::int64_t shares_max = 262'144;
// In a tree of version 2 they stand beside slices of the system, which weigh 100: its services have a part of
// a machine that is full.
constexpr std::int64_t unified_weight = 1'000;
constexpr std::size_t events_bytes_max = 65'536;

// A rank may have an eighth of what the host has, within these bounds; all ranks leave an eighth to others.
constexpr std::int64_t host_part = 8;
constexpr std::int64_t rank_processes_min = 4'096;
constexpr std::int64_t rank_processes_max = 32'768;

// 0 if there is none.
std::int64_t number_in(const std::string& path) {
  const auto content = files::read_file(path, events_bytes_max);
  if (!content || !*content) return 0;
  const auto text = trim(**content);
  std::int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? number : 0;
}

// Of a file of lines "NAME COUNT".
bool has_counted(const std::string& path, std::string_view name) {
  const auto events = files::read_file(path, events_bytes_max);
  if (!events || !*events) return false;
  for (const auto line : split(**events, '\n'))
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' '))
      return trim(line.substr(name.size())) != "0";
  return false;
}

std::string quota_us(std::int32_t cpus) { return std::to_string(cpus * period_us); }

// Writes into a file that exists, in one call, as the files of cgroups want it. False if that is not allowed.
bool write_existing(const std::string& path, std::string_view content) {
  const files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  return write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size());
}

// A fresh one: what an earlier shim of the same name left behind has old counts.
bool make_cgroup(const std::string& parent, const std::string& path) {
  if (!files::make_folder(parent, 0755)) return false;
  remove_cgroup(path);
  return files::make_folder(path, 0755).ok();
}

}  // namespace

ProcessLimits process_limits(std::int64_t of_host) {
  if (of_host <= 0) return {};
  const std::int64_t part = std::max(of_host / host_part, std::min(of_host / 2, rank_processes_min));
  return {.rank = std::max<std::int64_t>(1, std::min(part, rank_processes_max)),
          .ranks = of_host - of_host / host_part};
}

// The cgroup at the root has a limit where this is a container.
std::int64_t host_processes(const std::string& root, const std::string& proc) {
  std::int64_t least = 0;
  for (const std::string& path : {proc + "/sys/kernel/pid_max", proc + "/sys/kernel/threads-max",
                                  root + "/pids.max", root + "/pids/pids.max"}) {
    const std::int64_t most = number_in(path);
    if (most > 0) least = least == 0 ? most : std::min(least, most);
  }
  return least;
}

std::int64_t memory_kills(const std::string& proc) {
  const auto counts = files::read_file(proc + "/vmstat", events_bytes_max);
  if (!counts || !*counts) return -1;
  constexpr std::string_view name = "oom_kill ";
  for (const auto line : split(**counts, '\n')) {
    std::int64_t count = 0;
    if (!line.starts_with(name)) continue;
    const auto text = trim(line.substr(name.size()));
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), count);
    return parsed.ec == std::errc() ? count : -1;
  }
  return -1;
}

RankLimits::RankLimits(LimitRequest request, std::string root)
    : request_(std::move(request)), root_(std::move(root)) {
  if (request_.cpus == 0 && request_.memory == Bytes(0) && request_.processes.rank == 0) return;
  if (access((root_ + "/cgroup.controllers").c_str(), F_OK) == 0) {
    make_unified();
    return;
  }
  if (request_.memory > Bytes(0)) make_memory_controller();
  make_cpu_controller();
  if (request_.processes.rank > 0) make_process_controller();
}

RankLimits::~RankLimits() {
  for (const auto& cgroup : cgroups_) remove_cgroup(cgroup);
}

void RankLimits::make_unified() {
  const std::string parent = root_ + "/tutti";
  const std::string cgroup = parent + "/" + request_.name;
  if (!make_cgroup(parent, cgroup)) return;
  // A cgroup has a controller only if all above it hand it down; one at a time, so that one can be missing.
  for (const std::string_view controller : {"+memory", "+cpu", "+pids"}) {
    write_existing(root_ + "/cgroup.subtree_control", controller);
    write_existing(parent + "/cgroup.subtree_control", controller);
  }
  write_existing(parent + "/cpu.weight", std::to_string(unified_weight));
  cgroups_.push_back(cgroup);
  if (request_.memory > Bytes(0) &&
      write_existing(cgroup + "/memory.max", std::to_string(request_.memory.count())))
    memory_events_ = cgroup + "/memory.events";
  if (request_.cpus > 0)
    cpus_have_cgroup_ =
        write_existing(cgroup + "/cpu.max", quota_us(request_.cpus) + " " + std::to_string(period_us));
  if (request_.processes.rank > 0) limit_processes(parent, cgroup);
}

void RankLimits::limit_processes(const std::string& parent, const std::string& cgroup) {
  write_existing(parent + "/pids.max", std::to_string(request_.processes.ranks));
  if (write_existing(cgroup + "/pids.max", std::to_string(request_.processes.rank)))
    process_events_ = cgroup + "/pids.events";
}

void RankLimits::make_process_controller() {
  const std::string parent = root_ + "/pids/tutti";
  const std::string cgroup = parent + "/" + request_.name;
  if (access((root_ + "/pids").c_str(), F_OK) != 0 || !make_cgroup(parent, cgroup)) return;
  cgroups_.push_back(cgroup);
  limit_processes(parent, cgroup);
}

void RankLimits::make_memory_controller() {
  const std::string parent = root_ + "/memory/tutti";
  const std::string cgroup = parent + "/" + request_.name;
  if (!make_cgroup(parent, cgroup)) return;
  cgroups_.push_back(cgroup);
  if (write_existing(cgroup + "/memory.limit_in_bytes", std::to_string(request_.memory.count())))
    memory_events_ = cgroup + "/memory.oom_control";
}

void RankLimits::make_cpu_controller() {
  const std::string parent = root_ + "/cpu/tutti";
  const std::string cgroup = parent + "/" + request_.name;
  if (access((root_ + "/cpu").c_str(), F_OK) != 0 || !make_cgroup(parent, cgroup)) return;
  cgroups_.push_back(cgroup);
  const auto cpus = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  write_existing(parent + "/cpu.shares", std::to_string(std::min(cpus * shares_of_cpu, shares_max)));
  if (request_.cpus == 0) return;
  cpus_have_cgroup_ = write_existing(cgroup + "/cpu.cfs_period_us", std::to_string(period_us)) &&
                      write_existing(cgroup + "/cpu.cfs_quota_us", quota_us(request_.cpus));
}

void RankLimits::enter(const std::string& entered) const {
  bool joined = true;
  for (const auto& cgroup : cgroups_) {
    if (cgroup != entered) joined = write_existing(cgroup + "/cgroup.procs", "0") && joined;
  }
  if (request_.memory == Bytes(0) || (joined && memory_has_cgroup())) return;
  // Data, not address space: a CUDA program reserves far more addresses than it ever uses.
  const auto bytes = static_cast<rlim_t>(request_.memory.count());
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_DATA, &limit);
}

bool RankLimits::memory_limit_reached() const {
  return memory_has_cgroup() && has_counted(memory_events_, "oom_kill");
}

bool RankLimits::process_limit_reached() const {
  return processes_have_cgroup() && has_counted(process_events_, "max");
}

}  // namespace tutti::rank
