#include "node/agent/shim_processes.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "node/agent/known_change.hpp"
#include "node/agent/membership.hpp"
#include "node/agent/rank_end.hpp"
#include "node/rank/cgroups.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"

namespace tutti::agent {
namespace {

using cluster::RankState;
using cluster::RankStatus;

// For the end that a shim has left; then its own exit code has to do.
constexpr Duration end_read_max = 5s;
// What a shim may take beyond the grace period before its rank is ended over its head.
constexpr Duration shim_patience = 3s;
constexpr Duration force_every = 1s;
constexpr int forces_before_the_shim = 2;
constexpr Duration clear_every = 50ms;
constexpr std::size_t clear_looks_a_warning = 200;
// One rank that keeps the reader of its end waiting does not hold up the ends of others.
constexpr std::size_t end_threads_max = 4;
constexpr Duration sweep_time_max = 2s;

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

}  // namespace

ShimProcesses::ShimProcesses(net::Loop& loop, ProcessOptions options, Shipped& shipped, Attic& attic,
                             Calls calls)
    : loop_(loop),
      options_(std::move(options)),
      folder_(options_.folder + "/ranks"),
      shipped_(shipped),
      attic_(attic),
      calls_(std::move(calls)),
      sights_(loop, 1),
      shared_(loop, 1),
      ends_(loop, end_threads_max),
      notes_(loop, 1),
      removals_(loop, 1),
      starts_(loop, StartLimits(), [this](const RankKey& key, const auto& shim) { started(key, shim); }) {
  belong_to({});
}

std::string ShimProcesses::folder_of(const RankKey& key) const { return folder_ + "/" + key.text(); }

std::string ShimProcesses::hold_name(const RankKey& key) const { return cgroup_prefix_ + key.text(); }

bool ShimProcesses::lives(const RankKey& key) const {
  const auto shim = rank::read_shim(folder_of(key));
  return (shim && *shim && rank::is_alive(**shim)) || rank::Hold(hold_name(key)).exists();
}

// ---- what an earlier agent left

Result<std::map<RankKey, RankStatus>> ShimProcesses::adopt() {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder_);
  auto prefix = rank::cgroup_prefix(options_.node, options_.folder);
  if (!prefix) return std::move(prefix).error();
  cgroup_prefix_ = *std::move(prefix);
  const rank::Hold trial(cgroup_prefix_ + "trial");
  holds_ = trial.make();
  trial.remove();
  if (!holds_) {
    log::warning(
        "this agent may not make cgroups: processes of a rank that start sessions of their own are out of "
        "reach "
        "once its shim is killed, and those that become another user may be");
  }
  std::map<RankKey, RankStatus> found;
  std::vector<std::pair<Instant, std::string>> finished;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failure)) {
    const auto key = parse_key(entry.path().filename().string());
    if (!key) continue;
    std::error_code unknown;
    if (!entry.is_directory(unknown) || entry.is_symlink(unknown)) continue;
    if (std::filesystem::exists(acknowledged_mark(entry.path().string()), unknown) && !lives(*key)) {
      finished.emplace_back(changed_at(entry.path().string()), entry.path().string());
    } else {
      found[*key] = adopt_one(*key);
    }
  }
  std::sort(finished.begin(), finished.end());
  // First: what the attic removes from now on passes through the same folder.
  sweep(found);
  // Of ranks whose folders are gone or say that all is over; before a rank of the same name can start.
  const auto lives_on = [&](const std::string& name) {
    const auto rank = parse_key(name) ? found.find(*parse_key(name)) : found.end();
    return rank != found.end() && rank->second.state == RankState::started;
  };
  if (!rank::sweep_cgroups(cgroup_prefix_, lives_on, sweep_time_max))
    log::warning("not all cgroups of earlier ranks, {}*, could be removed", cgroup_prefix_);
  for (const auto& [time, path] : finished) attic_.put(path, time);
  return found;
}

// What an earlier agent was about to remove, and shipped folders that no rank uses any more.
void ShimProcesses::sweep(const std::map<RankKey, RankStatus>& found) {
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder + "/removed", failure))
    removals_.run([path = entry.path().string()]() -> Lane::Then {
      static_cast<void>(files::remove_folder(path));
      return {};
    });
  std::set<std::string> used;
  for (const auto& [key, status] : found) used.insert(attempt_name(key.job, key.attempt));
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder + "/work", failure)) {
    if (!used.contains(entry.path().filename().string())) remove_later(entry.path().string());
  }
}

RankStatus ShimProcesses::adopt_one(const RankKey& key) {
  const std::string folder = folder_of(key);
  const auto shim = rank::take_over(folder);
  const auto spec = rank::read_spec(folder);
  // Not the one that the specification names: it lies in the rank's folder, and who is held is killed.
  const rank::Hold hold(hold_name(key));
  if (shim && *shim && rank::is_alive(**shim) && !end_in(folder)) {
    Entry& entry = running_[key];
    entry.shim = **shim;
    entry.hold = hold;
    entry.grace = spec ? spec->grace : Duration::zero();
    auto pidfd = rank::open_pidfd(entry.shim.pid);
    watch(key, entry, pidfd ? std::move(*pidfd) : files::FileDescriptor());
    rank::unmark_stopped(folder);
    log::info("adopted rank {} (pid {})", key.text(), entry.shim.pid);
    return {RankState::started};
  }
  Ended end{.shim = shim && *shim ? **shim : rank::ShimProcess(),
            .hold = hold,
            .end_known = true,
            .left = end_in(folder),
            .timer = {}};
  const bool recorded = end.left.has_value();
  if (!recorded)
    end.left = RankEnd{{RankState::exited, 137, "it was gone when its agent came back", true}, {}};
  // What has done its work has done it; a peer that was shut down sooner may have made others fail.
  if (RankStatus& status = end.left->status; rank::is_stopped(folder) && status.exit_code != 0) {
    status = RankStatus{RankState::exited, 137, "it was shut down with its node"};
    status.stopped = true;
  }
  if ((recorded && !hold.exists()) || rank::kill_leftovers(end.hold, end.shim)) {
    end.hold.remove();
    ended_at_[key] = end.left->at;
    return end.left->status;
  }
  // Its shim has gone, the rank has not: it has ended when its last process has.
  ended_[key] = std::move(end);
  loop_.post([this, key] { clear(key); });
  return {RankState::started};
}

// ---- starts

void ShimProcesses::prepare(const wire::StartRanks& start) {
  shipped_.prepare(start.sync, attempt_name(start.job, start.attempt),
                   [this, job = start.job, attempt = start.attempt](const Result<std::string>& folder) {
                     loop_.post([this, job, attempt, folder] { calls_.prepared(job, attempt, folder); });
                   });
}

void ShimProcesses::stop_preparing(cluster::JobId job, std::int32_t attempt) {
  shipped_.drop(attempt_name(job, attempt));
}

void ShimProcesses::release(cluster::JobId job, std::int32_t attempt) {
  remove_later(shipped_.path_of(attempt_name(job, attempt)));
  ports_.give_back(job, attempt);
}

void ShimProcesses::belong_to(const keeper::Membership& membership) {
  membership_ = membership;
  membership_notes_ = std::make_shared<MembershipNotes>(options_.folder, membership.cluster);
  attic_.belong_to(membership.cluster);
}

void ShimProcesses::remember(const keeper::Membership& membership) {
  if (membership.cluster != membership_.cluster)
    log::info("this node is of cluster {} now", membership.cluster);
  membership_ = membership;
  attic_.belong_to(membership.cluster);
  if (!noting_) note_membership();
}

// One at a time, and then what has come meanwhile: a thousand new jobs are not a thousand writes. Until then
// the folders of their ranks tell of them.
void ShimProcesses::note_membership() {
  noting_ = true;
  notes_.run([this, notes = membership_notes_, membership = membership_]() -> Lane::Then {
    const auto written = notes->write(membership);
    return [this, membership, why = written ? "" : written.error().text()] {
      noting_ = false;
      if (!why.empty()) log::warning("{}", why);
      if (membership != membership_) note_membership();
    };
  });
}

void ShimProcesses::put_aside(const std::string& cluster) {
  if (starts_.under_way()) {
    loop_.post([this] { calls_.went_aside(failed("a start does not come back")); });
    return;
  }
  notes_.run([this, cluster, folder = options_.folder]() -> Lane::Then {
    auto moved = put_ranks_aside(folder, cluster);
    return [this, cluster, moved = std::move(moved)] {
      if (!moved) {
        log::error("the controller is of another cluster than this folder: {}", moved.error().text());
        return calls_.went_aside(moved.error());
      }
      log::warning(
          "the controller is of another cluster than this folder: the ranks and logs of cluster {} are in {}",
          cluster, *moved);
      attic_.clear();
      ended_at_.clear();
      calls_.went_aside({});
    };
  });
}

Result<> ShimProcesses::take_port(const wire::StartRanks& attempt) {
  return ports_.take(attempt.job, attempt.attempt, attempt.master_port);
}

// Jobs of two clusters have the same numbers, and may share the folder for checkpoints.
std::string ShimProcesses::checkpoints_of(cluster::JobId job) const {
  const std::string cluster = membership_.cluster.empty() ? "" : "/" + membership_.cluster;
  return options_.checkpoints + cluster + "/" + job.text();
}

// Out of the way at once, so that a later agent does not take what is left of it for something whole.
void ShimProcesses::remove_later(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string target = options_.folder + "/removed/" + name + "." + std::to_string(::getpid()) + "." +
                             std::to_string(++removed_);
  removals_.run([path, target, parent = options_.folder + "/removed"]() -> Lane::Then {
    if (!files::make_folder(parent, 0700) || ::rename(path.c_str(), target.c_str()) != 0) return {};
    auto removed = files::remove_folder(target);
    if (removed) return {};
    return [why = removed.error().text()] { log::warning("{}", why); };
  });
}

void ShimProcesses::start(const wire::StartRanks& attempt, const std::string& workdir) {
  const auto shared = std::make_shared<const wire::StartRanks>(attempt);
  for (std::size_t rank = 0; rank < shared->ranks.size(); ++rank) {
    const RankKey key{attempt.job, attempt.attempt, shared->ranks[rank].rank};
    starts_.begin(key, [order = RankOrder{.attempt = shared,
                                          .rank = rank,
                                          .folder = folder_of(key),
                                          .workdir = workdir,
                                          .cgroup = hold_name(key),
                                          .checkpoints = checkpoints_of(key.job),
                                          .tutti_program = options_.tutti_program,
                                          .cluster = membership_.cluster,
                                          .notes = membership_notes_}](const MayRun& may_run) {
      return start_rank(order, may_run);
    });
  }
}

void ShimProcesses::started(const RankKey& key, const Result<std::shared_ptr<StartedShim>>& shim) {
  if (!shim) return calls_.started(key, shim.error());
  Entry& entry = running_[key];
  entry.ours = true;
  entry.shim = (*shim)->process;
  entry.hold = (*shim)->hold;
  entry.grace = (*shim)->grace;
  entry.told = cluster::Told::no;
  watch(key, entry, std::move((*shim)->pidfd));
  calls_.started(key, {});
}

// ---- ends

// The watch owns the descriptor, so that it is closed after it is watched no more: as long as a process that
// is being made has a copy of it, a closed one would still be heard of, in place of whoever is watched next.
// For the same reason what is heard is looked at: a rank is not ended because somebody else was.
void ShimProcesses::watch(const RankKey& key, Entry& entry, files::FileDescriptor pidfd) {
  if (!pidfd.valid()) {
    // It has ended between two lines of this program.
    loop_.post([this, key] { ended(key); });
    return;
  }
  const auto process = std::make_shared<const files::FileDescriptor>(std::move(pidfd));
  entry.watch = loop_.when_readable(process->get(), [this, key, process] {
    if (rank::has_ended(*process)) ended(key);
  });
}

// By value: the watch that calls it goes with the entry.
void ShimProcesses::ended(RankKey key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Ended end{.shim = found->second.shim,
            .hold = found->second.hold,
            .forced = found->second.forced > 0,
            .told = found->second.told,
            .left = {},
            .timer = {}};
  int status = 0;
  if (found->second.ours && ::waitpid(end.shim.pid, &status, WNOHANG) == end.shim.pid && WIFEXITED(status))
    end.shim_code = WEXITSTATUS(status);
  running_.erase(found);
  ended_at_[key] = now_on_the_wall();
  end.timer = loop_.after(end_read_max, [this, key] { end_read(key, std::nullopt, false); });
  ended_[key] = std::move(end);
  ends_.run([this, key, folder = folder_of(key), hold = ended_[key].hold]() -> Lane::Then {
    auto left = end_in(folder);
    // A shim that has put the end on record has ended all there was.
    const bool all_gone = left && !hold.exists();
    return [this, key, left = std::move(left), all_gone] { end_read(key, left, all_gone); };
  });
}

void ShimProcesses::end_read(const RankKey& key, std::optional<RankEnd> end, bool all_gone) {
  const auto found = ended_.find(key);
  if (found == ended_.end() || found->second.end_known) return;
  found->second.end_known = true;
  found->second.left = std::move(end);
  if (all_gone) return cleared(key, true);
  clear(key);
}

// The rank of a shim that was killed has ended when the last of its processes has, because until then it may
// hold a device. They are looked for among all processes of the machine, which takes its time. The cgroups of
// its limits go with the one that holds it: nobody else is left to remove them.
void ShimProcesses::clear(const RankKey& key) {
  const auto found = ended_.find(key);
  if (found == ended_.end()) return;
  ends_.run([this, key, name = hold_name(key), hold = found->second.hold,
             shim = found->second.shim]() -> Lane::Then {
    const bool all_gone = rank::kill_leftovers(hold, shim);
    if (all_gone) static_cast<void>(rank::clear_cgroups(name));
    return [this, key, all_gone] { cleared(key, all_gone); };
  });
}

void ShimProcesses::cleared(const RankKey& key, bool all_gone) {
  const auto found = ended_.find(key);
  if (found == ended_.end()) return;
  Ended& end = found->second;
  if (!all_gone) {
    if (++end.looks % clear_looks_a_warning == 0)
      log::warning("rank {} has been killed, and processes of it do not end", key.text());
    end.timer = loop_.after(clear_every, [this, key] { clear(key); });
    return;
  }
  RankStatus status = verdict(end);
  status.told = end.told;
  if (status.exit_code == 0 && !status.detail.empty()) log::warning("rank {}: {}", key.text(), status.detail);
  // What the shim wrote is nearer to the truth than when this loop came to hear of it.
  if (end.left && end.left->at != Instant()) ended_at_[key] = end.left->at;
  ended_.erase(found);
  calls_.exited(key, status);
}

RankStatus ShimProcesses::verdict(const Ended& end) const {
  if (end.left) return end.left->status;
  if (end.shim_code)
    return {RankState::exited, *end.shim_code, "its shim could not write its end to the disk of the node"};
  if (!end.forced) return {RankState::exited, 137, "its shim was killed", true};
  return {RankState::exited, 137,
          holds_
              ? "it was killed with its shim, which did not end it"
              : "it was killed with its shim, which did not end it; without cgroups on this node, processes "
                "that started sessions of their own may live on"};
}

void ShimProcesses::end(const RankKey& key, bool at_once) {
  if (starts_.stop(key)) {
    loop_.post([this, key] { calls_.started(key, failed("it was ended before it started")); });
    return;
  }
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Entry& entry = found->second;
  entry.told = cluster::Told::yes;
  if (auto asked = rank::end_shim(entry.shim, at_once); !asked)
    log::warning("cannot end rank {}: {}", key.text(), asked.error().text());
  if (at_once && entry.forced == 0) entry.patience.reset();
  const Duration grace = at_once ? Duration::zero() : entry.grace;
  if (!entry.patience) entry.patience = loop_.after(grace + shim_patience, [this, key] { force(key); });
}

// The shim is stopped, held up by a disk, or cannot signal its rank. First the rank, so that a shim that can
// still speak puts the end on record; then the shim.
void ShimProcesses::force(const RankKey& key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Entry& entry = found->second;
  if (entry.forced == 0)
    log::warning("the shim of rank {} does not end it: the agent kills all its processes", key.text());
  const bool shim_too = ++entry.forced > forces_before_the_shim;
  ends_.run([hold = entry.hold, shim = entry.shim, shim_too]() -> Lane::Then {
    static_cast<void>(rank::kill_leftovers(hold, shim));
    static_cast<void>(rank::end_shim(shim, true));
    if (shim_too) rank::kill_shim(shim);
    return {};
  });
  entry.patience = loop_.after(force_every, [this, key] { force(key); });
}

Duration ShimProcesses::ended_ago(const RankKey& key) const {
  const auto known = ended_at_.find(key);
  if (known == ended_at_.end() || known->second == Instant()) return {};
  return std::max<Duration>(now_on_the_wall() - known->second, Duration::zero());
}

void ShimProcesses::forget(const RankKey& key) {
  ended_at_.erase(key);
  const std::string folder = folder_of(key);
  notes_.run([this, folder]() -> Lane::Then {
    // A rank that never started has none.
    if (std::error_code ignored; !std::filesystem::exists(folder, ignored)) return {};
    // Nothing is written where a rank has put a link in place of its folder.
    if (std::error_code ignored; std::filesystem::is_symlink(folder, ignored)) return {};
    const auto marked = files::replace_file(acknowledged_mark(folder), "");
    return [this, folder, why = marked ? "" : marked.error().text()] {
      if (!why.empty()) log::warning("{}", why);
      attic_.put(folder, now_on_the_wall());
    };
  });
}

// ---- what ranks leave in their folders

// One look at a time: a disk that does not answer gathers neither threads nor memory, and what was seen last
// holds.
void ShimProcesses::look(const std::vector<RankKey>& running) {
  if (shared_.under_way() == 0) {
    std::map<cluster::JobId, std::string> folders;
    for (const RankKey& key : running) folders[key.job] = checkpoints_of(key.job);
    shared_.run([this, folders = std::move(folders)]() -> Lane::Then {
      std::map<cluster::JobId, std::optional<Instant>> saved;
      for (const auto& [job, folder] : folders) saved[job] = known_change(folder);
      return [this, saved = std::move(saved)] {
        const auto before = std::exchange(saved_, {});
        for (const auto& [job, known] : saved) {
          const auto last = before.find(job);
          saved_[job] = known ? *known : last == before.end() ? Instant() : last->second;
        }
      };
    });
  }
  if (sights_.under_way() != 0) return;
  struct Rank {
    RankKey key;
    std::string folder;
    rank::ShimProcess shim;
  };
  std::vector<Rank> ranks;
  for (const RankKey& key : running) {
    const auto entry = running_.find(key);
    if (entry != running_.end()) ranks.push_back({key, folder_of(key), entry->second.shim});
  }
  sights_.run([this, ranks = std::move(ranks)]() -> Lane::Then {
    std::vector<std::pair<RankKey, std::string>> said;
    for (const Rank& rank : ranks) {
      // A shim that its rank has stopped keeps neither log nor time.
      rank::wake_shim(rank.shim);
      std::string sentence = rank::read_verdict(rank.folder);
      if (sentence.empty()) sentence = rank::read_progress(rank.folder);
      said.emplace_back(rank.key, std::move(sentence));
    }
    return [this, said = std::move(said)] {
      for (const auto& [key, sentence] : said) {
        const auto saved = saved_.find(key.job);
        calls_.seen(key, {sentence, saved == saved_.end() ? Instant() : saved->second});
      }
    };
  });
}

std::map<std::int32_t, std::string> log_folders(const std::string& ranks_folder, cluster::JobId job,
                                                std::int32_t attempt) {
  std::map<std::int32_t, std::string> folders;
  const std::string prefix = attempt_name(job, attempt) + ".";
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(ranks_folder, failure)) {
    // Most of thousands are of other jobs.
    const std::string& path = entry.path().native();
    if (path.compare(ranks_folder.size() + 1, prefix.size(), prefix) != 0) continue;
    if (const auto key = parse_key(entry.path().filename().string())) folders[key->rank] = path;
  }
  return folders;
}

}  // namespace tutti::agent
