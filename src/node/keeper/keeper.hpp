// What an agent knows and does: the ranks that its node answers for, started here or found after a restart,
// and the conversation with the controller about them. No sockets and no processes of its own: those are
// ports, so that the simulator drives the same code. One loop calls all of it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "control/cluster/step.hpp"
#include "control/wire/messages.hpp"
#include "node/keeper/processes.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::keeper {

class Keeper {
 public:
  // May be called at any time; what cannot be sent is dropped, because the next Hello tells everything.
  using Send = std::function<void(const wire::AgentMessage&)>;

  // `self` is the Hello without ranks.
  Keeper(cluster::Hello self, Processes& processes, Send send);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Takes over what an earlier agent left: running ranks and ends that nobody has acknowledged.
  Result<> adopt();

  // ---- the controller

  // First on each connection, and whenever the controller asks.
  void say_hello();
  // Each `cluster::heartbeat_every`.
  void heartbeat();
  void on(const wire::StartRanks& start);
  void on(const wire::EndRanks& end);
  void on(const wire::ForgetRanks& forget);

  // ---- the node

  void prepared(cluster::JobId job, std::int32_t attempt, const Result<std::string>& folder);
  void exited(const RankKey& key, const cluster::RankStatus& status);
  // What look() has found.
  void seen(const RankKey& key, Sight sight);

  bool running(const RankKey& key) const;
  const std::map<RankKey, cluster::RankStatus>& ranks() const { return ranks_; }

 private:
  using Attempt = std::pair<cluster::JobId, std::int32_t>;
  using Ranks = std::map<RankKey, cluster::RankStatus>;

  // The ranks of one attempt follow each other.
  std::pair<Ranks::iterator, Ranks::iterator> ranks_of(cluster::JobId job, std::int32_t attempt);
  void start(const wire::StartRanks& attempt, const wire::StartRank& rank, const std::string& workdir);
  void fail(const RankKey& key, const std::string& why);
  void report(const RankKey& key);
  void release_if_unused(cluster::JobId job, std::int32_t attempt);

  cluster::Hello self_;
  Processes& processes_;
  Send send_;
  Ranks ranks_;
  std::map<Attempt, wire::StartRanks> preparing_;  // their folder is under way; the ranks are `assigned`
};

}  // namespace tutti::keeper
