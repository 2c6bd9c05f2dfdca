#include "node/agent/shim_processes.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/files/rights.hpp"
#include "base/log/log.hpp"
#include "node/agent/known_change.hpp"
#include "node/agent/membership.hpp"
#include "node/agent/rank_end.hpp"
#include "node/agent/rank_names.hpp"
#include "node/rank/cgroups.hpp"
#include "node/rank/leftovers.hpp"
#include "node/rank/process.hpp"
#include "node/rank/secrets.hpp"
#include "node/rank/shim.hpp"
#include "node/rank/told_end.hpp"

namespace tutti::agent {
namespace {

using cluster::RankState;
using cluster::RankStatus;

// What a shim may take beyond the grace period before its rank is ended over its head.
constexpr Duration shim_patience = 3s;
constexpr Duration force_every = 1s;
constexpr int forces_before_the_shim = 2;
// A shim that has not gone so long after it was killed hangs in a disk, and nobody knows when it will go.
constexpr int forces_before_it_is_left = 10;
constexpr std::size_t left_shims_max = 64;
constexpr Duration watch_again_after = 200ms;
constexpr Duration clear_every = 50ms;
// A node on which a disk is missing takes no work for so long.
constexpr Duration not_mounted_time = 1min;
constexpr std::size_t clear_looks_a_warning = 200;
// Whoever was killed for so long, some 30 s, waits where a kill does not reach him.
constexpr std::size_t clear_looks_hung = 3 * clear_looks_a_warning;
// One rank that keeps the reader of its folder waiting does not hold up the others.
constexpr std::size_t sight_threads_max = 2;
constexpr std::size_t end_threads_max = 4;
// Of a shared disk that stands still a few threads are enough.
constexpr LaneLimits shared_limits{.threads_max = 1, .patience = 2s, .stuck_max = 8};
// Orders that concern the agent's folder and not one rank's.
constexpr const char* own_notes = "the agent";
// The processes of all shims, as the kernel names them.
constexpr const char* all_shims = "all shims";

Error no_room_in_time() {
  return failed("its agent has as many files open as it may, and other ranks have not ended for " +
                format_duration(room_patience));
}

Error more_than_can_be_watched(std::size_t ranks, std::size_t files) {
  return failed("its agent may not open enough files to watch " + std::to_string(ranks) +
                " ranks: no more than " + std::to_string(files) + " in all (`ulimit -Hn`)");
}

// The first that a shim does is to say who it is. What cannot be read tells nothing.
bool has_begun(const std::string& folder) {
  if (!rank::is_own_folder(folder)) return true;
  const auto shim = rank::read_shim(folder);
  return !shim || *shim;
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
      room_(loop, files::files_to_give(options_.open_files.most)),
      sights_(loop, LaneLimits{.threads_max = sight_threads_max}),
      shared_(loop, shared_limits),
      ends_(loop, LaneLimits{.threads_max = end_threads_max}),
      clears_(loop, LaneLimits{.threads_max = end_threads_max}),
      notes_(loop, LaneLimits{.threads_max = 1}),
      removals_(loop, options_.folder + "/removed", removals_every, {.of_users = options_.as_users}),
      accounts_(loop, LaneLimits{.threads_max = end_threads_max}),
      starts_(loop, StartLimits(), [this](const RankKey& key, const auto& shim) { started(key, shim); }) {
  attic_.on_staying([this](const std::string& path) { removals_.stays(path); });
  belong_to({});
}

std::string ShimProcesses::folder_of(const RankKey& key) const { return folder_ + "/" + key.text(); }

std::string ShimProcesses::place_of(cluster::JobId job, std::int32_t attempt) const {
  return place_name(job, attempt, membership_.cluster);
}

std::string ShimProcesses::hold_name(const RankKey& key) const {
  const auto before = cgroups_before_.find(key.text());
  return before == cgroups_before_.end() ? cgroup_prefix_ + key.text() : before->second;
}

std::string ShimProcesses::illness() const {
  if (ends_.full() || clears_.full() || notes_.full())
    return "the folders of too many ranks are on disks that do not answer";
  if (left_shims_.size() >= left_shims_max)
    return "the shims of too many ranks hang in disks that do not answer";
  if (!not_mounted_.empty()) return not_mounted_;
  return starts_.illness();
}

// ---- starts

// Whose account its ranks run as is looked up first.
bool ShimProcesses::has_room(const wire::StartRanks& start) {
  return !isolation_ && room_.enter({start.job, start.attempt}, start.ranks.size());
}

void ShimProcesses::prepare(const wire::StartRanks& start) {
  const auto done = [this, job = start.job, attempt = start.attempt](const Result<std::string>& folder,
                                                                     keeper::Hindrance hindrance) {
    loop_.post([this, job, attempt, folder, hindrance] { calls_.prepared(job, attempt, folder, hindrance); });
  };
  if (!room_.can_hold({start.job, start.attempt}, start.ranks.size()))
    return done(more_than_can_be_watched(start.ranks.size(), options_.open_files.most),
                keeper::Hindrance::job);
  if (room_.waiting() == 0 && !room_.fits({start.job, start.attempt}, start.ranks.size()))
    log::warning("ranks wait until others have ended: this agent may have no more than {} files open",
                 options_.open_files.most);
  room_.wait(
      {start.job, start.attempt}, start.ranks.size(),
      [this, done, start] { isolation_ ? find_account(start, done) : lay_out(start, done); },
      [this, job = start.job, attempt = start.attempt] {
        log::warning("job {} is given back: others here do not end", job.text());
        calls_.prepared(job, attempt, no_room_in_time(), keeper::Hindrance::passing);
      });
}

void ShimProcesses::stop_preparing(cluster::JobId job, std::int32_t attempt) {
  const bool is_looked_up = looked_up_.erase({job, attempt}) != 0;
  if (!is_looked_up && !room_.is_waiting({job, attempt})) return shipped_.drop(place_of(job, attempt));
  if (!is_looked_up) room_.leave({job, attempt});
  loop_.post([this, job, attempt] {
    calls_.prepared(job, attempt, failed("nobody wants it any more"), keeper::Hindrance::passing);
  });
}

void ShimProcesses::release(cluster::JobId job, std::int32_t attempt) {
  const auto isolated = isolated_.find({job, attempt});
  const std::string account = isolated == isolated_.end() ? "" : account_owner(isolated->second->account.uid);
  // Earlier versions called them as the attempt alone.
  for (const std::string& place : {place_of(job, attempt), attempt_name(job, attempt)}) {
    removals_.move_out(shipped_.path_of(place), account);
    if (isolation_) remove_places(place, account);
  }
  isolated_.erase({job, attempt});
  ports_.give_back(job, attempt);
  room_.leave({job, attempt});
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
  const auto noted = [this, membership = membership_](const std::string& why) {
    noting_ = false;
    if (!why.empty()) log::warning("{}", why);
    if (membership != membership_) note_membership();
  };
  notes_.run(
      own_notes,
      [noted, notes = membership_notes_, membership = membership_]() -> Lane::Then {
        const auto written = notes->write(membership);
        return [noted, why = written ? "" : written.error().text()] { noted(why); };
      },
      noted);
}

void ShimProcesses::put_aside(const std::string& cluster) {
  // Nothing that was begun for a rank of the old cluster may meet one of the new.
  if (starts_.under_way() || notes_.under_way() > 0) {
    loop_.post([this] { calls_.went_aside(failed("a start or a mark does not come back")); });
    return;
  }
  const auto moved = [this, cluster](const Result<std::string>& place) {
    if (!place) {
      log::error("the controller is of another cluster than this folder: {}", place.error().text());
      return calls_.went_aside(place.error());
    }
    log::warning(
        "the controller is of another cluster than this folder: the ranks and logs of cluster {} are in {}",
        cluster, *place);
    attic_.clear();
    attic_.keep_aside();
    ended_at_.clear();
    calls_.went_aside({});
  };
  notes_.run(
      own_notes,
      [moved, cluster, folder = options_.folder]() -> Lane::Then {
        return [moved, place = put_ranks_aside(folder, cluster)] { moved(place); };
      },
      [moved](const std::string& why) { moved(failed(why)); });
}

Result<std::int32_t> ShimProcesses::take_port(const wire::StartRanks& attempt) {
  return ports_.take(attempt.job, attempt.attempt, attempt.master_port, attempt.whole_gang);
}

// Jobs of two clusters have the same numbers, and may share the folder for checkpoints.
std::string ShimProcesses::checkpoints_of(cluster::JobId job) const {
  const std::string cluster = membership_.cluster.empty() ? "" : "/" + membership_.cluster;
  return options_.checkpoints + cluster + "/" + job.text();
}

void ShimProcesses::start(const wire::StartRanks& attempt, const std::string& workdir) {
  const auto shared = std::make_shared<const wire::StartRanks>(attempt);
  room_.start({attempt.job, attempt.attempt}, attempt.ranks.size());
  const auto isolated = isolated_.find({attempt.job, attempt.attempt});
  const auto isolation = isolated == isolated_.end() ? nullptr : isolated->second;
  for (std::size_t rank = 0; rank < shared->ranks.size(); ++rank) {
    const RankKey key{attempt.job, attempt.attempt, shared->ranks[rank].rank};
    starts_.begin(key, [order = RankOrder{.attempt = shared,
                                          .rank = rank,
                                          .folder = folder_of(key),
                                          .workdir = workdir,
                                          .cgroup = hold_name(key),
                                          .checkpoints = checkpoints_of(key.job),
                                          .shared_checkpoints = options_.shared_checkpoints,
                                          .tutti_program = options_.tutti_program,
                                          .cluster = membership_.cluster,
                                          .open_files = options_.open_files.before,
                                          .notes = membership_notes_,
                                          .isolation = isolation}](const MayRun& may_run) {
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
  entry.lived_at = now_steady();
  if (const std::string& moved = (*shim)->in_its_place; !moved.empty()) {
    log::warning("something was in the place of the folder of rank {}, and is removed", key.text());
    removals_.move_out(moved);
  }
  watch(key, entry, std::move((*shim)->pidfd));
  calls_.started(key, {});
}

// ---- ends

// The watch owns the descriptor, so that it is closed after it is watched no more: as long as a process that
// is being made has a copy of it, a closed one would still be heard of, in place of whoever is watched next.
// For the same reason what is heard is looked at: a rank is not ended because somebody else was.
void ShimProcesses::watch(const RankKey& key, Entry& entry, files::FileDescriptor pidfd) {
  if (!pidfd.valid()) {
    // It has ended between two lines of this program, or there was no file left to watch it with.
    const bool is_gone = rank::is_gone(entry.shim);
    entry.watch = loop_.after(is_gone ? Duration::zero() : watch_again_after,
                              [this, key, is_gone] { is_gone ? ended(key) : watch_again(key); });
    return;
  }
  const auto process = std::make_shared<const files::FileDescriptor>(std::move(pidfd));
  entry.watch = loop_.when_readable(process->get(), [this, key, process] {
    if (rank::has_ended(*process)) ended(key);
  });
}

// By value: the watch that calls it goes with the entry.
void ShimProcesses::watch_again(RankKey key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  watch(key, found->second, pidfd_of(found->second.shim));
}

// An agent that may open fewer files than the one before it finds more ranks than it would let in.
files::FileDescriptor ShimProcesses::pidfd_of(const rank::ShimProcess& shim) const {
  if (room_.is_short()) return {};
  auto pidfd = rank::open_pidfd(shim.pid);
  return pidfd && !rank::is_gone(shim) ? std::move(*pidfd) : files::FileDescriptor();
}

// By value, too.
void ShimProcesses::ended(RankKey key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Ended end{.shim = found->second.shim,
            .hold = found->second.hold,
            .own_end = found->second.own_end,
            .forced = found->second.forced > 0,
            .told = found->second.told,
            .began = !found->second.ours,
            .left = {},
            .timer = {}};
  end.lived_at = lived_at(found->second);
  int status = 0;
  // Until it is reaped its name stays, with which it tells the end of its rank: any exit code can be that of
  // one.
  end.rank_ran = rank::process_name(end.shim.pid).starts_with(rank::ended_shim_name);
  if (found->second.ours && ::waitpid(end.shim.pid, &status, WNOHANG) == end.shim.pid) {
    end.shim_killed = !WIFEXITED(status);
    end.by_others = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (WIFEXITED(status)) end.shim_code = WEXITSTATUS(status);
  }
  running_.erase(found);
  read_end(key, std::move(end));
}

bool ShimProcesses::note_end(const RankKey& key, Entry& entry) {
  if (entry.own_end) return true;
  const auto code = rank::told_end(entry.shim);
  if (!code) return false;
  entry.own_end = OwnEnd{*code, now_on_the_wall()};
  // Not killed: once its disk answers it puts the end on record, for whichever agent is there then.
  entry.patience = loop_.after(record_patience, [this, key] { leave_shim(key); });
  return true;
}

void ShimProcesses::look_for_ends() {
  if (clears_.busy(all_shims)) return;
  std::vector<std::pair<RankKey, rank::ShimProcess>> shims;
  for (const auto& [key, entry] : running_) {
    if (!entry.own_end) shims.emplace_back(key, entry.shim);
  }
  clears_.run(all_shims, [this, shims = std::move(shims)]() -> Lane::Then {
    std::vector<RankKey> over;
    std::vector<std::pair<RankKey, Instant>> running;
    for (const auto& [key, shim] : shims) {
      const Instant now = now_steady();
      if (rank::told_end(shim)) {
        over.push_back(key);
      } else if (rank::is_alive(shim)) {
        running.emplace_back(key, now);
      }
    }
    return [this, over = std::move(over), running = std::move(running)] {
      for (const auto& [key, at] : running) {
        if (const auto found = running_.find(key); found != running_.end()) found->second.lived_at = at;
      }
      for (const RankKey& key : over) {
        if (const auto found = running_.find(key); found != running_.end()) note_end(key, found->second);
      }
    };
  });
}

// By the clock that nobody sets: what was seen before the other was set is as long ago as it was.
Instant ShimProcesses::lived_at(const Entry& entry) {
  return now_on_the_wall() - (now_steady() - entry.lived_at);
}

// It was killed, and so it never does anything again, or has not put the end of its rank on record for long:
// it hangs in a disk that does not answer. The rank it had is over, and nobody is to wait for the disk.
void ShimProcesses::leave_shim(RankKey key) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  if (!found->second.own_end && found->second.forced <= forces_before_it_is_left) return;
  Entry& entry = found->second;
  log::warning("the shim of rank {}, pid {}, {}, and is left behind", key.text(), entry.shim.pid,
               entry.own_end ? "does not put its end on record" : "hangs in a disk that does not answer");
  Ended end{.shim = entry.shim,
            .hold = entry.hold,
            .own_end = entry.own_end,
            .forced = true,
            .told = entry.told,
            .is_left = true,
            .left = {},
            .timer = {}};
  end.lived_at = lived_at(entry);
  // By value: the watch goes with what it is kept in.
  if (auto process = rank::open_pidfd(entry.shim.pid)) {
    const auto pidfd = std::make_shared<const files::FileDescriptor>(*std::move(process));
    const auto reap = [this, pid = entry.shim.pid, pidfd] {
      if (!rank::has_ended(*pidfd)) return;
      ::waitpid(pid, nullptr, WNOHANG);
      loop_.post([this, pid] { left_shims_.erase(pid); });
    };
    left_shims_[entry.shim.pid] = loop_.when_readable(pidfd->get(), reap);
  }
  running_.erase(found);
  read_end(key, std::move(end));
}

void ShimProcesses::read_end(const RankKey& key, Ended end) {
  ended_at_[key] = end.own_end ? end.own_end->at : now_on_the_wall();
  end.timer = loop_.after(end_read_max, [this, key] { end_unread(key); });
  // A shim that has put the end on record and ended by itself has ended all there was. A rank may have done
  // the first in its place, and killed it.
  const bool by_itself = holds_ || end.shim_code;
  ended_[key] = std::move(end);
  ends_.run(
      owner_of(key),
      [this, key, folder = folder_of(key), hold = ended_[key].hold, by_itself,
       began = ended_[key].began]() -> Lane::Then {
        EndRead read{.left = end_in(folder)};
        read.all_gone = read.left && by_itself && !hold.exists();
        read.began = began || read.left || has_begun(folder);
        return [this, key, read = std::move(read)] { end_read(key, read); };
      },
      [this, key](const std::string&) { end_unread(key); });
}

void ShimProcesses::end_read(const RankKey& key, EndRead read) {
  const auto found = ended_.find(key);
  if (found == ended_.end() || found->second.end_known) return;
  found->second.end_known = true;
  found->second.began = read.began;
  found->second.left = std::move(read.left);
  if (read.all_gone) return cleared(key, true);
  clear(key);
}

void ShimProcesses::end_unread(const RankKey& key) {
  const auto found = ended_.find(key);
  if (found == ended_.end() || found->second.end_known) return;
  log::warning("the folder of rank {} does not answer: how it ended is told without it", key.text());
  found->second.unread = true;
  end_read(key, {});
}

// The rank of a shim that was killed has ended when the last of its processes has, because until then it may
// hold a device. They are looked for among all processes of the machine, which takes its time. The cgroups of
// its limits go with the one that holds it: nobody else is left to remove them.
void ShimProcesses::clear(const RankKey& key) {
  const auto found = ended_.find(key);
  if (found == ended_.end()) return;
  clears_.run(
      owner_of(key),
      [this, key, name = hold_name(key), hold = found->second.hold,
       shim = found->second.shim]() -> Lane::Then {
        const bool all_gone = rank::kill_leftovers(hold, shim);
        if (all_gone) static_cast<void>(rank::clear_cgroups(name));
        return [this, key, all_gone] { cleared(key, all_gone); };
      },
      [this, key](const std::string&) { cleared(key, false); });
}

void ShimProcesses::cleared(const RankKey& key, bool all_gone) {
  const auto found = ended_.find(key);
  if (found == ended_.end()) return;
  Ended& end = found->second;
  if (!all_gone) {
    if (++end.looks % clear_looks_a_warning == 0) {
      log::warning("rank {} has been killed, and processes of it do not end", key.text());
      if (end.looks >= clear_looks_hung) tell_hung(key);
    }
    end.timer = loop_.after(clear_every, [this, key] { clear(key); });
    return;
  }
  RankStatus status = verdict(end);
  status.told = end.told;
  const bool misses_saved = status.node_fault && end.left;
  if (status.exit_code == 0 && !status.detail.empty()) log::warning("rank {}: {}", key.text(), status.detail);
  Instant& at = ended_at_.try_emplace(key, now_on_the_wall()).first->second;
  if (end.left)
    at = believed_end(*end.left, {.heard_at = at, .lived_at = end.lived_at, .shim_killed = end.shim_killed});
  ended_.erase(found);
  if (misses_saved) miss_disk(status.detail);
  calls_.exited(key, status);
}

// A rank has not found what its job saved, which the job may have removed by itself. Only if the disk is not
// the one on which ranks found theirs before, others would save what nobody else sees: until it is back.
void ShimProcesses::miss_disk(const std::string& why) {
  shared_.run(options_.checkpoints, [this, why, folder = options_.checkpoints]() -> Lane::Then {
    return [this, why, disk = known_disk(folder)] {
      if (!disk || !found_on_ || disk == found_on_) return;
      not_mounted_ = why.substr(0, why.find('\n'));
      not_mounted_timer_ = loop_.after(not_mounted_time, [this] { not_mounted_.clear(); });
    };
  });
}

RankStatus ShimProcesses::verdict(const Ended& end) const {
  if (end.left)
    return end.shim_code == rank::exit_code_not_runnable ? end.left->status
                                                         : without_witness(end.left->status);
  const bool says_so = end.shim_code == rank::exit_code_not_begun && !end.rank_ran;
  // One that somebody has killed, for want of memory perhaps, tells nothing about its program.
  if ((says_so || (!end.began && !end.by_others)) && !end.forced && !end.own_end) {
    RankStatus status{RankState::exited, rank::exit_code_not_runnable,
                      says_so
                          ? "it did not begin: the disk of the node did not take what its shim wrote"
                          : "its shim ended before it began: the program of the node's agent does not run"};
    // Its folder tells that, which is in the rank's hands: the job goes elsewhere, and nobody else does.
    status.node_fault = status.no_room = true;
    return status;
  }
  if (end.shim_code || end.own_end)
    return {RankState::exited, end.shim_code ? *end.shim_code : end.own_end->exit_code,
            end.unread ? "its folder does not answer: its log could not be read"
                       : "its shim could not write its end to the disk of the node"};
  if (!end.forced && end.unread)
    return {RankState::exited, 137, "it has ended, and its folder does not answer: how is not known", true};
  if (!end.forced) return {RankState::exited, 137, "its shim was killed", true};
  RankStatus killed{RankState::exited, 137,
                    end.is_left ? "it was killed; its shim hangs in a disk of the node that does not answer"
                    : holds_    ? "it was killed with its shim, which did not end it"
                             : "it was killed with its shim, which did not end it; without cgroups on this "
                               "node, processes that started sessions of their own may live on"};
  killed.by_signal = true;
  return killed;
}

void ShimProcesses::end(const RankKey& key, bool at_once) {
  if (starts_.stop(key)) {
    loop_.post([this, key] { calls_.started(key, failed("it was ended before it started")); });
    return;
  }
  if (const auto unread = unread_.find(key); unread != unread_.end())
    unread->second.end_at_once = at_once || unread->second.end_at_once.value_or(false);
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Entry& entry = found->second;
  // Who has ended before is not told any more.
  if (!note_end(key, entry)) entry.told = cluster::Told::yes;
  if (auto asked = rank::end_shim(entry.shim, at_once); !asked)
    log::warning("cannot end rank {}: {}", key.text(), asked.error().text());
  if (entry.own_end) return;
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
  if (note_end(key, entry)) return;
  if (entry.forced == 0)
    log::warning("the shim of rank {} does not end it: the agent kills all its processes", key.text());
  const bool shim_too = ++entry.forced > forces_before_the_shim;
  clears_.run(owner_of(key), [this, key, hold = entry.hold, shim = entry.shim, shim_too]() -> Lane::Then {
    const bool all_gone = rank::kill_leftovers(hold, shim);
    static_cast<void>(rank::end_shim(shim, true));
    if (shim_too) rank::kill_shim(shim);
    if (!shim_too || !all_gone) return {};
    return [this, key] { leave_shim(key); };
  });
  entry.patience = loop_.after(force_every, [this, key] { force(key); });
}

Duration ShimProcesses::ended_ago(const RankKey& key) const {
  const auto known = ended_at_.find(key);
  if (known == ended_at_.end() || known->second == Instant()) return {};
  return std::max<Duration>(now_on_the_wall() - known->second, Duration::zero());
}

Duration ShimProcesses::ran(const RankKey& key) const {
  const auto found = running_.find(key);
  const bool known = found != running_.end() && found->second.shim.start_time != 0;
  return known ? rank::since_start(found->second.shim.start_time) : Duration::zero();
}

void ShimProcesses::forget(const RankKey& key) {
  ended_at_.erase(key);
  const std::string folder = folder_of(key);
  notes_.run(owner_of(key), [this, folder]() -> Lane::Then {
    // A rank that never started has none. Nothing is written where a rank has put a link in its place.
    if (!rank::is_own_folder(folder)) return {};
    files::restore_rights(folder);
    // Of a shim that was killed.
    rank::remove_secrets_folder(folder);
    const auto marked = files::replace_file(acknowledged_mark(folder), "");
    return [this, folder, why = marked ? "" : marked.error().text()] {
      if (!why.empty()) log::warning("{}", why);
      attic_.put(folder, now_on_the_wall());
    };
  });
}

// ---- what ranks leave in their folders

// One look at a time for each: a disk that does not answer gathers neither threads nor memory, what was seen
// last holds, and others are seen all the same.
void ShimProcesses::look(const std::vector<RankKey>& running) {
  std::set<cluster::JobId> jobs;
  for (const RankKey& key : running) jobs.insert(key.job);
  std::erase_if(saved_, [&](const auto& saved) { return !jobs.contains(saved.first); });
  // On a disk of its own what a job has saved is nothing that another node could go on with.
  if (!options_.shared_checkpoints) jobs.clear();
  for (const cluster::JobId job : jobs) {
    if (shared_.busy(owner_of(job))) continue;
    shared_.run(owner_of(job),
                [this, job, folder = checkpoints_of(job), root = options_.checkpoints]() -> Lane::Then {
                  // What is not known without asking the disk stays as it was.
                  return [this, job, known = known_change(folder), disk = known_disk(root)] {
                    if (!known) return;
                    if (disk) found_on_ = disk;
                    saved_[job] = *known;
                  };
                });
  }
  look_for_ends();
  for (const RankKey& key : running) {
    const auto entry = running_.find(key);
    const std::string owner = owner_of(key);
    if (entry == running_.end() || sights_.busy(owner)) continue;
    sights_.run(owner, [this, key, folder = folder_of(key), shim = entry->second.shim]() -> Lane::Then {
      // A shim that its rank has stopped keeps neither log nor time.
      rank::wake_shim(shim);
      std::string said;
      if (rank::is_own_folder(folder)) said = rank::read_verdict(folder);
      if (said.empty() && rank::is_own_folder(folder)) said = rank::read_progress(folder);
      return [this, key, said = std::move(said)] {
        const auto saved = saved_.find(key.job);
        calls_.seen(key, {said, saved == saved_.end() ? Instant() : saved->second});
      };
    });
  }
}

std::map<std::int32_t, std::string> log_folders(const std::string& ranks_folder, cluster::JobId job,
                                                std::int32_t attempt) {
  std::map<std::int32_t, std::string> folders;
  const std::string prefix = attempt_name(job, attempt) + ".";
  const auto entries = rank_entries(ranks_folder, prefix);
  if (!entries) return folders;
  for (const RankEntry& entry : *entries) {
    // A link that a rank has put in place of its folder leads nowhere that is ours.
    if (!entry.is_link) folders[entry.key.rank] = entry.path;
  }
  return folders;
}

}  // namespace tutti::agent
