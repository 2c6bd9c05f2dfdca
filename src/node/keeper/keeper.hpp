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

  // What the agent's folder says of itself: before the first Hello.
  void introduce(const std::string& identity, const std::string& machine, const Membership& membership);
  // Takes over what an earlier agent left: running ranks and ends that nobody has acknowledged.
  Result<> adopt();

  // ---- the controller

  // First on each connection, and whenever the controller asks.
  void say_hello();
  // Each `cluster::heartbeat_every`.
  void heartbeat();
  // What keeps the node from taking work, told with each heartbeat and Hello; "" if nothing does.
  void set_illness(std::string why) { self_.illness = std::move(why); }
  // What of keeping ranks apart this node cannot do: before the first Hello.
  void set_lacks(std::string what) { self_.lacks = std::move(what); }
  void on(const wire::StartRanks& start);
  void on(const wire::EndRanks& end);
  void on(const wire::ForgetRanks& forget);
  void on(const wire::Welcome& welcome);

  // ---- the node

  void prepared(cluster::JobId job, std::int32_t attempt, const Result<std::string>& folder,
                Hindrance hindrance = Hindrance::node);
  // A start has come to its end: the rank runs, or never will.
  void started(const RankKey& key, const Result<>& outcome);
  void went_aside(const Result<>& outcome);
  void exited(const RankKey& key, const cluster::RankStatus& status);
  // The highest id of a job of that cluster whose folder for checkpoints is there: the disk may remember more
  // than this node.
  void saved(const std::string& cluster, std::uint64_t job);
  // What look() has found.
  void seen(const RankKey& key, Sight sight);

  // The node has other devices than before.
  void has(const cluster::Inventory& inventory);
  const cluster::Inventory& inventory() const { return self_.inventory; }

  bool running(const RankKey& key) const;
  const std::map<RankKey, cluster::RankStatus>& ranks() const { return ranks_; }

 private:
  using Attempt = std::pair<cluster::JobId, std::int32_t>;
  using Ranks = std::map<RankKey, cluster::RankStatus>;
  enum class Wanted { start, end, end_at_once };  // of a rank whose start is under way

  // The ranks of one attempt follow each other.
  std::pair<Ranks::iterator, Ranks::iterator> ranks_of(cluster::JobId job, std::int32_t attempt);
  void note_job(cluster::JobId job);
  // Ranks of another cluster have ended, or have to.
  void leave_old_cluster();
  void start(wire::StartRanks attempt, const std::string& workdir);
  // It never runs, or ends as soon as it is known that it does.
  void end(const RankKey& key, cluster::RankStatus& status, bool at_once);
  void stop_preparing_if_unwanted(cluster::JobId job, std::int32_t attempt);
  void fail(const RankKey& key, const Error& why, Hindrance hindrance = Hindrance::node);
  // It is no fault of the program.
  void give_back(const RankKey& key, const std::string& why);
  cluster::RankReport report_of(const RankKey& key, const cluster::RankStatus& status) const;
  void report(const RankKey& key);
  void release_if_unused(cluster::JobId job, std::int32_t attempt);

  cluster::Hello self_;
  Processes& processes_;
  Send send_;
  Ranks ranks_;
  std::string next_cluster_;  // it goes over to this one when the ranks of the old one have ended; "" if not
  bool going_aside_ = false;  // what was of the old cluster is being moved
  // The ranks of both are `assigned`: their folder is under way, or their start is.
  std::map<Attempt, wire::StartRanks> preparing_;
  std::map<RankKey, Wanted> starting_;  // it is ended as soon as it has started, if that is wanted by then
};

}  // namespace tutti::keeper
