#include "node/agent/shim_processes.hpp"

#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "node/rank/log_segments.hpp"
#include "node/rank/process.hpp"

namespace tutti::agent {
namespace {

using cluster::RankState;
using cluster::RankStatus;

constexpr std::size_t detail_lines = 20;
constexpr std::size_t detail_bytes = 4096;

// What ranks inherit from the agent; everything else comes from the job.
constexpr std::array<const char*, 10> inherited{"PATH",   "HOME", "USER",   "LOGNAME",         "LANG",
                                                "LC_ALL", "TZ",   "TMPDIR", "LD_LIBRARY_PATH", "SHELL"};

std::optional<RankKey> parse_key(const std::string& name) {
  const auto parts = split(name, '.');
  if (parts.size() != 3) return std::nullopt;
  std::array<std::uint64_t, 3> numbers{};
  for (std::size_t at = 0; at < 3; ++at) {
    const auto parsed = parse_id_number(parts[at]);
    if (!parsed) return std::nullopt;
    numbers[at] = *parsed;
  }
  return RankKey{cluster::JobId(numbers[0]), static_cast<std::int32_t>(numbers[1]),
                 static_cast<std::int32_t>(numbers[2])};
}

std::string attempt_name(cluster::JobId job, std::int32_t attempt) {
  return job.text() + "." + std::to_string(attempt);
}

// When something in the folder was made or removed last; zero if it cannot be known.
Instant changed_at(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return {};
  return Instant(std::chrono::seconds(status.st_mtim.tv_sec) +
                 std::chrono::nanoseconds(status.st_mtim.tv_nsec));
}

std::string marker(const std::string& folder) { return folder + "/acknowledged"; }

void set(std::map<std::string, std::string>& env, const std::string& entry) {
  const auto equals = entry.find('=');
  env[entry.substr(0, equals)] = equals == std::string::npos ? "" : entry.substr(equals + 1);
}

// What a reader of `tutti show` needs to see of a rank that failed.
std::string describe_failure(const std::string& folder, const rank::RankExit& exit) {
  std::string detail = exit.detail;
  // Who hung or died, by the judgement of all ranks, says more than what this one printed.
  if (const std::string verdict = rank::read_verdict(folder); !verdict.empty()) {
    detail += (detail.empty() ? "" : "; ") + verdict;
  }
  auto lines = rank::last_lines(folder, detail_lines, detail_bytes);
  if (lines && !lines->empty())
    detail += (detail.empty() ? "" : "; ") + ("last lines of its log:\n" + *lines);
  return detail.substr(0, wire::detail_bytes_max);
}

// The end that the shim has left in the folder; nothing if there is none.
std::optional<RankStatus> end_in(const std::string& folder) {
  const auto exit = rank::read_exit(folder);
  if (!exit || !*exit) return std::nullopt;
  const std::int32_t code = (*exit)->exit_code;
  return RankStatus{RankState::exited, code, code == 0 ? "" : describe_failure(folder, **exit)};
}

}  // namespace

ShimProcesses::ShimProcesses(net::Loop& loop, ProcessOptions options, Shipped& shipped, Attic& attic,
                             Calls calls)
    : loop_(loop),
      options_(std::move(options)),
      folder_(options_.folder + "/ranks"),
      shipped_(shipped),
      attic_(attic),
      calls_(std::move(calls)) {}

std::string ShimProcesses::folder_of(const RankKey& key) const { return folder_ + "/" + key.text(); }

// ---- what an earlier agent left

Result<std::map<RankKey, RankStatus>> ShimProcesses::adopt() {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder_);
  std::map<RankKey, RankStatus> found;
  std::vector<std::pair<Instant, std::string>> finished;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failure)) {
    const auto key = parse_key(entry.path().filename().string());
    if (!key) continue;
    if (std::filesystem::exists(marker(entry.path().string()))) {
      finished.emplace_back(changed_at(entry.path().string()), entry.path().string());
    } else {
      found[*key] = adopt_one(*key);
    }
  }
  std::sort(finished.begin(), finished.end());
  for (auto& [time, path] : finished) attic_.put(std::move(path), time);
  return found;
}

RankStatus ShimProcesses::adopt_one(const RankKey& key) {
  const std::string folder = folder_of(key);
  const auto shim = rank::take_over(folder);
  if (auto end = end_in(folder)) return *end;
  if (!shim || !*shim || !rank::is_alive(**shim))
    return {RankState::exited, 137, "it was gone when its agent came back", true};
  Entry& entry = running_[key];
  entry.shim = **shim;
  watch(key, entry);
  log::info("adopted rank {} (pid {})", key.text(), entry.shim.pid);
  return {RankState::started};
}

// ---- starts

void ShimProcesses::prepare(const wire::StartRanks& start) {
  shipped_.prepare(start.sync, attempt_name(start.job, start.attempt),
                   [this, job = start.job, attempt = start.attempt](const Result<std::string>& folder) {
                     loop_.post([this, job, attempt, folder] { calls_.prepared(job, attempt, folder); });
                   });
}

void ShimProcesses::release(cluster::JobId job, std::int32_t attempt) {
  shipped_.remove(attempt_name(job, attempt));
}

Result<> ShimProcesses::start(const wire::StartRanks& attempt, const wire::StartRank& rank,
                              const std::string& workdir) {
  const RankKey key{attempt.job, attempt.attempt, rank.rank};
  const std::string folder = folder_of(key);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return failed("cannot make " + folder + ": " + failure.message());
  rank::RankSpec spec;
  spec.command = attempt.command;
  spec.env = environment(attempt, rank);
  spec.env.push_back("TUTTI_VERDICT_FILE=" + rank::verdict_path(folder));
  spec.env.push_back("TUTTI_PROGRESS_FILE=" + rank::progress_path(folder));
  spec.workdir = workdir.empty() ? "/" : workdir;
  spec.cgroup = "tutti-" + options_.node + "-" + key.text();
  spec.cpus = attempt.cpus;
  spec.memory = attempt.memory;
  spec.grace = attempt.grace;
  spec.output = rank.output;
  if (auto written = rank::write_spec(folder, spec); !written) return written;
  auto pid = rank::start_shim(options_.tutti_program, folder);
  if (!pid) return std::move(pid).error();
  Entry& entry = running_[key];
  entry.ours = true;
  const auto process = rank::read_process(*pid);
  entry.shim = {*pid, process ? process->start_time : 0};
  watch(key, entry);
  return {};
}

std::vector<std::string> ShimProcesses::environment(const wire::StartRanks& attempt,
                                                    const wire::StartRank& rank) const {
  std::map<std::string, std::string> env;
  for (const char* name : inherited) {
    if (const char* value = std::getenv(name); value != nullptr) env[name] = value;
  }
  const std::string checkpoints = options_.checkpoints + "/" + attempt.job.text();
  std::error_code ignored;
  std::filesystem::create_directories(checkpoints, ignored);
  env["TUTTI_CHECKPOINT_DIR"] = checkpoints;
  for (const auto& entry : attempt.env) set(env, entry);
  for (const auto& entry : rank.env) set(env, entry);
  std::vector<std::string> entries;
  entries.reserve(env.size());
  for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
  return entries;
}

// ---- ends

void ShimProcesses::watch(const RankKey& key, Entry& entry) {
  auto pidfd = rank::open_pidfd(entry.shim.pid);
  if (!pidfd) {
    // It has ended between two lines of this program.
    loop_.post([this, key] { ended(key); });
    return;
  }
  entry.pidfd = std::move(*pidfd);
  entry.watch = loop_.when_readable(entry.pidfd.get(), [this, key] { ended(key); });
}

// By value: the watch that calls it goes with the entry.
void ShimProcesses::ended(RankKey key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  if (found->second.ours) ::waitpid(found->second.shim.pid, nullptr, WNOHANG);
  running_.erase(found);
  auto end = end_in(folder_of(key));
  calls_.exited(key, end ? *end : RankStatus{RankState::exited, 137, "its shim was killed", true});
}

void ShimProcesses::end(const RankKey& key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  if (auto asked = rank::end_shim(found->second.shim, false); !asked)
    log::warning("cannot end rank {}: {}", key.text(), asked.error().text());
}

void ShimProcesses::forget(const RankKey& key) {
  const std::string folder = folder_of(key);
  // A rank that never started has none.
  if (std::error_code ignored; !std::filesystem::exists(folder, ignored)) return;
  if (auto marked = files::replace_file(marker(folder), ""); !marked)
    log::warning("{}", marked.error().text());
  attic_.put(folder, now_on_the_wall());
}

// ---- what ranks leave in their folders

std::string ShimProcesses::said(const RankKey& key) {
  std::string sentence = rank::read_verdict(folder_of(key));
  return sentence.empty() ? rank::read_progress(folder_of(key)) : sentence;
}

Instant ShimProcesses::saved_at(const RankKey& key) {
  return changed_at(options_.checkpoints + "/" + key.job.text());
}

std::map<std::int32_t, std::string> ShimProcesses::log_folders(cluster::JobId job,
                                                               std::int32_t attempt) const {
  std::map<std::int32_t, std::string> folders;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failure)) {
    const auto key = parse_key(entry.path().filename().string());
    if (key && key->job == job && key->attempt == attempt) folders[key->rank] = entry.path().string();
  }
  return folders;
}

}  // namespace tutti::agent
