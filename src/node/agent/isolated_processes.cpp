// Ranks that run as the accounts of their users: the part of ShimProcesses that finds out who they are.
#include <utility>

#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "node/agent/rank_names.hpp"
#include "node/agent/shim_processes.hpp"

namespace tutti::agent {

Result<> ShimProcesses::begin_isolation() {
  if (!options_.as_users) {
    log::info(
        "ranks run as whoever this agent is, uid {}: nothing keeps them from one another, nor from what the "
        "agent has (--isolation none)",
        ::geteuid());
    return {};
  }
  auto rules = std::make_shared<IsolationRules>(
      IsolationRules::Options{options_.folder, options_.checkpoints, options_.users_file});
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

}  // namespace tutti::agent
