// Ranks that run as the accounts of their users: the part of ShimProcesses that finds out who they
// are, and what they keep from their end.
#include <utility>

#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "node/agent/rank_names.hpp"
#include "node/agent/shim_processes.hpp"
#include "node/rank/fuse.hpp"

namespace tutti::agent {

namespace {

// Disks that users serve themselves.
constexpr const char* hung_disks = "hung disks";
constexpr const char* does_not_end =
    "it has been killed, and processes of it do not end: they wait for a disk or a device that does not "
    "answer. "
    "Until they have gone, it holds what it had";

}  // namespace

Result<> ShimProcesses::begin_isolation() {
  if (!options_.as_users) {
    log::info(
        "ranks run as whoever this agent is, uid {}: nothing keeps them from one another, nor from what the "
        "agent has (--isolation none)",
        ::geteuid());
    return {};
  }
  auto rules = std::make_shared<IsolationRules>(
      IsolationRules::Options{options_.folder, options_.checkpoints, options_.users_file, options_.people});
  if (auto begun = rules->begin(cgroup_prefix_ + "trial"); !begun) return begun;
  log::info("ranks run as the accounts of their users");
  for (const std::string& lack : rules->lacks()) log::warning("{}", lack);
  isolation_ = std::move(rules);
  return {};
}

void ShimProcesses::lay_out(const wire::StartRanks& start, const Prepared& done) {
  if (start.sync.empty()) return done(start.workdir, keeper::Hindrance::node);
  const auto isolated = isolated_.find({start.job, start.attempt});
  shipped_.prepare(start.user, start.sync, place_of(start.job, start.attempt), done,
                   isolated == isolated_.end() ? nullptr : isolated->second);
}

// A directory of users that does not answer keeps its asker, which nobody can end, and is the node's trouble:
// the job goes elsewhere.
void ShimProcesses::find_account(const wire::StartRanks& start, const Prepared& done) {
  const Attempt attempt(start.job, start.attempt);
  const auto give_up = [this, attempt, done](const std::string& why) {
    if (looked_up_.erase(attempt) != 0) done(failed(why), keeper::Hindrance::node);
  };
  looked_up_[attempt] = loop_.after(account_patience, [give_up, user = start.user] {
    give_up("who " + user + " is on the node is not known after " + format_duration(account_patience) +
            ": its directory of users does not answer");
  });
  accounts_.run(
      owner_of(start.job),
      [this, start, done, attempt, rules = isolation_, place = place_of(start.job, start.attempt),
       asked_at = Accounts::Clock::now()]() -> Lane::Then {
        return [this, start, done, attempt, place, found = rules->prepare(start.user, place, asked_at)] {
          if (looked_up_.erase(attempt) != 0) return account_found(start, found, done);
          if (!isolated_.contains(attempt)) remove_places(place);
        };
      },
      give_up);
}

void ShimProcesses::account_found(const wire::StartRanks& start, const IsolationRules::Prepared& found,
                                  const Prepared& done) {
  if (!found.warning.empty() && found.warning != account_warning_) log::warning("{}", found.warning);
  account_warning_ = found.warning;
  if (!found.isolation) return done(found.why, found.hindrance);
  isolated_[{start.job, start.attempt}] = found.isolation;
  lay_out(start, done);
}

void ShimProcesses::remove_places(const std::string& place, const std::string& owner) {
  for (const std::string& path : isolation_->places_of(place)) removals_.remove(path, owner);
}

// People see it, and nobody else goes without the node for that. Disks that its user serves himself he can
// keep silent for ever: they are given up.
void ShimProcesses::tell_hung(const RankKey& key) {
  const auto saved = saved_.find(key.job);
  calls_.seen(key, {does_not_end, saved == saved_.end() ? Instant() : saved->second});
  if (!isolation_) return;
  clears_.run(hung_disks, [key, folder = folder_of(key)]() -> Lane::Then {
    const auto spec =
        rank::is_own_folder(folder) ? rank::read_spec(folder) : Result<rank::RankSpec>(failed(""));
    const std::size_t aborted =
        spec && spec->isolation ? rank::abort_waiting_disks_of(spec->isolation->account.uid) : 0;
    return [key, aborted] {
      if (aborted > 0)
        log::warning("{} disks that the user of rank {} serves do not answer, and are given up", aborted,
                     key.text());
    };
  });
}

}  // namespace tutti::agent
