#include "node/rank/limits.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string_view>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "node/rank/cgroups.hpp"

namespace tutti::rank {
namespace {

constexpr std::int64_t period_us = 100'000;
constexpr std::size_t events_bytes_max = 65'536;

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

RankLimits::RankLimits(LimitRequest request, std::string root)
    : request_(std::move(request)), root_(std::move(root)) {
  if (request_.cpus == 0 && request_.memory == Bytes(0)) return;
  if (access((root_ + "/cgroup.controllers").c_str(), F_OK) == 0) {
    make_unified();
    return;
  }
  if (request_.memory > Bytes(0)) make_memory_controller();
  if (request_.cpus > 0) make_cpu_controller();
}

RankLimits::~RankLimits() {
  for (const auto& cgroup : cgroups_) remove_cgroup(cgroup);
}

void RankLimits::make_unified() {
  const std::string parent = root_ + "/tutti";
  const std::string cgroup = parent + "/" + request_.name;
  if (!make_cgroup(parent, cgroup)) return;
  // A cgroup has a controller only if all above it hand it down; one at a time, so that one can be missing.
  for (const std::string_view controller : {"+memory", "+cpu"}) {
    write_existing(root_ + "/cgroup.subtree_control", controller);
    write_existing(parent + "/cgroup.subtree_control", controller);
  }
  cgroups_.push_back(cgroup);
  if (request_.memory > Bytes(0) &&
      write_existing(cgroup + "/memory.max", std::to_string(request_.memory.count())))
    memory_events_ = cgroup + "/memory.events";
  if (request_.cpus > 0)
    cpus_have_cgroup_ =
        write_existing(cgroup + "/cpu.max", quota_us(request_.cpus) + " " + std::to_string(period_us));
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
  if (!make_cgroup(parent, cgroup)) return;
  cgroups_.push_back(cgroup);
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
  if (!memory_has_cgroup()) return false;
  const auto events = files::read_file(memory_events_, events_bytes_max);
  if (!events || !*events) return false;
  for (const auto line : split(**events, '\n'))
    if (line.starts_with("oom_kill ")) return trim(line.substr(sizeof "oom_kill")) != "0";
  return false;
}

}  // namespace tutti::rank
