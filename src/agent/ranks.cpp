#include "agent/ranks.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/text.hpp"
#include "log/log.hpp"
#include "rank/log_segments.hpp"
#include "rank/process.hpp"

namespace tutti::agent {
namespace {

constexpr std::size_t detail_lines = 20;
constexpr std::size_t detail_bytes = 4096;

// "7.0.3" is rank 3 of attempt 0 of job 7.
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

std::string name_of(const RankKey& key) {
  return key.job.text() + "." + std::to_string(key.attempt) + "." + std::to_string(key.rank);
}

std::string marker(const std::string& folder) { return folder + "/acknowledged"; }

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

}  // namespace

Ranks::Ranks(net::Loop& loop, std::string folder, std::string tutti_program,
             std::function<void(cluster::RankReport)> report, std::function<void(const RankKey&)> before_end)
    : loop_(loop),
      folder_(std::move(folder)),
      tutti_program_(std::move(tutti_program)),
      report_(std::move(report)),
      before_end_(std::move(before_end)) {}

std::string Ranks::folder_of(const RankKey& key) const { return folder_ + "/" + name_of(key); }

Result<> Ranks::adopt() {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder_);
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> finished;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failure)) {
    const auto key = parse_key(entry.path().filename().string());
    if (!key) continue;
    if (std::filesystem::exists(marker(entry.path().string()))) {
      finished.emplace_back(entry.last_write_time(failure), entry.path().string());
    } else {
      adopt_one(*key);
    }
  }
  std::sort(finished.begin(), finished.end());
  for (auto& [time, path] : finished) finished_.push_back(std::move(path));
  trim();
  return {};
}

void Ranks::adopt_one(const RankKey& key) {
  const std::string folder = folder_of(key);
  Entry& entry = ranks_[key];
  const auto shim = rank::take_over(folder);
  const auto exit = rank::read_exit(folder);
  if (exit && *exit) {
    entry.status = {cluster::RankState::exited, (*exit)->exit_code,
                    (*exit)->exit_code == 0 ? "" : describe_failure(folder, **exit)};
  } else if (shim && *shim && rank::is_alive(**shim)) {
    entry.shim = **shim;
    entry.status.state = cluster::RankState::started;
    watch(key, entry);
    log::info("adopted rank {} (pid {})", name_of(key), entry.shim.pid);
  } else {
    entry.status = {cluster::RankState::exited, 137, "it was gone when its agent came back", true};
  }
}

void Ranks::start(const RankKey& key, const rank::RankSpec& spec) {
  if (knows(key)) return report(key);
  const std::string folder = folder_of(key);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return fail(key, "cannot make " + folder + ": " + failure.message());
  rank::RankSpec whole = spec;
  whole.env.push_back("TUTTI_VERDICT_FILE=" + rank::verdict_path(folder));
  whole.env.push_back("TUTTI_PROGRESS_FILE=" + rank::progress_path(folder));
  if (auto written = rank::write_spec(folder, whole); !written) return fail(key, written.error().text());
  auto pid = rank::start_shim(tutti_program_, folder);
  if (!pid) return fail(key, pid.error().text());
  Entry& entry = ranks_[key];
  entry.ours = true;
  const auto process = rank::read_process(*pid);
  entry.shim = {*pid, process ? process->start_time : 0};
  entry.status.state = cluster::RankState::started;
  report(key);
  watch(key, entry);
}

void Ranks::fail(const RankKey& key, const std::string& why) {
  ranks_[key].status = {cluster::RankState::exited, 126, "could not be started: " + why};
  report(key);
}

void Ranks::watch(const RankKey& key, Entry& entry) {
  auto pidfd = rank::open_pidfd(entry.shim.pid);
  if (!pidfd) {
    // It has ended between two lines of this program.
    loop_.post([this, key] { ended(key); });
    return;
  }
  entry.pidfd = std::move(*pidfd);
  entry.watch = loop_.when_readable(entry.pidfd.get(), [this, key] { ended(key); });
}

void Ranks::ended(const RankKey& key) {
  const auto found = ranks_.find(key);
  if (found == ranks_.end() || found->second.status.state == cluster::RankState::exited) return;
  Entry& entry = found->second;
  entry.watch.reset();
  entry.pidfd.reset();
  if (entry.ours) ::waitpid(entry.shim.pid, nullptr, WNOHANG);
  const std::string folder = folder_of(key);
  const auto exit = rank::read_exit(folder);
  if (exit && *exit) {
    const auto code = (*exit)->exit_code;
    entry.status = {cluster::RankState::exited, code, code == 0 ? "" : describe_failure(folder, **exit)};
  } else {
    entry.status = {cluster::RankState::exited, 137, "its shim was killed", true};
  }
  before_end_(key);
  report(key);
}

void Ranks::end(cluster::JobId job, std::int32_t attempt) {
  for (auto& [key, entry] : ranks_) {
    if (key.job != job || key.attempt != attempt) continue;
    if (entry.status.state == cluster::RankState::exited) {
      report(key);
    } else if (auto asked = rank::end_shim(entry.shim, false); !asked) {
      log::warning("cannot end rank {}: {}", name_of(key), asked.error().text());
    }
  }
}

void Ranks::forget(cluster::JobId job, std::int32_t attempt) {
  for (auto at = ranks_.begin(); at != ranks_.end();) {
    const bool over = at->first.job == job && at->first.attempt == attempt &&
                      at->second.status.state == cluster::RankState::exited;
    if (!over) {
      ++at;
      continue;
    }
    const std::string folder = folder_of(at->first);
    if (auto marked = rank::replace_file(marker(folder), ""); !marked)
      log::warning("{}", marked.error().text());
    finished_.push_back(folder);
    at = ranks_.erase(at);
  }
  trim();
}

void Ranks::trim() {
  if (finished_.size() <= finished_folders_max) return;
  const auto excess = static_cast<std::ptrdiff_t>(finished_.size() - finished_folders_max);
  std::error_code ignored;
  for (auto at = finished_.begin(); at != finished_.begin() + excess; ++at)
    std::filesystem::remove_all(*at, ignored);
  finished_.erase(finished_.begin(), finished_.begin() + excess);
}

void Ranks::report(const RankKey& key) { report_({key.job, key.attempt, key.rank, ranks_.at(key).status}); }

void Ranks::look_at_sentences() {
  for (auto& [key, entry] : ranks_) {
    if (entry.status.state != cluster::RankState::started) continue;
    std::string said = rank::read_verdict(folder_of(key));
    if (said.empty()) said = rank::read_progress(folder_of(key));
    if (said == entry.status.detail) continue;
    entry.status.detail = std::move(said);
    report(key);
  }
}

std::vector<cluster::RankReport> Ranks::reports() const {
  std::vector<cluster::RankReport> reports;
  for (const auto& [key, entry] : ranks_) reports.push_back({key.job, key.attempt, key.rank, entry.status});
  return reports;
}

std::map<std::int32_t, std::string> Ranks::log_folders(cluster::JobId job, std::int32_t attempt) const {
  std::map<std::int32_t, std::string> folders;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failure)) {
    const auto key = parse_key(entry.path().filename().string());
    if (key && key->job == job && key->attempt == attempt) folders[key->rank] = entry.path().string();
  }
  return folders;
}

bool Ranks::running(const RankKey& key) const {
  const auto found = ranks_.find(key);
  return found != ranks_.end() && found->second.status.state != cluster::RankState::exited;
}

}  // namespace tutti::agent
