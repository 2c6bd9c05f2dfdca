// The promises of the cluster, watched from outside: what really runs on the nodes on one side, what the
// controller has stored on the other. The first broken one is kept as a sentence. One thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/cluster/step.hpp"
#include "control/store/store.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::sim {

using keeper::RankKey;

class Checks {
 public:
  // "" while every promise is kept.
  const std::string& violation() const { return violation_; }
  void violate(const std::string& what);

  // ---- what really happens

  // `disk` names the life of the node's disk: what a wiped disk knew, nobody can know.
  void process_started(const std::string& node, std::uint64_t disk, const RankKey& key);
  // Without an exit code it was killed, or died with its node.
  void process_ended(Duration now, const RankKey& key, std::optional<std::int32_t> exit_code);
  // With all that it knew of ranks that had ended.
  void disk_lost(const std::string& node);
  // What a rank of the job did took its node down.
  void node_killed(cluster::JobId job);
  // With another clock: how long attempts had run it knows from nodes alone, within a minute.
  void controller_rebooted(Duration now) { rebooted_at_ = now; }
  void faults_stopped(Duration now) { calm_since_ = now; }
  void acknowledged(const std::vector<cluster::JobId>& jobs);

  // ---- what the controller believes

  // After each turn, with the state that it has stored.
  void turned(Duration now, const cluster::State& state);
  // After a turn that could not be stored, or that nobody knows of whether it was: what is on the disk
  // counts.
  void stored(Duration now, const store::Contents& contents);
  // What is in memory is what is on the disk.
  void same(const cluster::State& state, const store::Contents& contents);
  // After the faults: everything is finished.
  std::string unfinished(const cluster::State& state) const;
  // The last attempt of each job that there was, forgotten ones too.
  const std::map<cluster::JobId, std::int32_t>& attempts() const { return attempts_; }

 private:
  using Attempt = std::pair<cluster::JobId, std::int32_t>;
  struct Placed {
    Duration since{};
    std::vector<cluster::RankPlace> places;
  };

  void note_lost(Duration now, const cluster::State& state);
  void check_devices(const std::string& node, const RankKey& key, const cluster::RankPlace& place);
  void check_other_attempts(const RankKey& key);
  void check_job(Duration now, const cluster::Job& job);
  void check_finished(const cluster::Job& job);
  void check_success(const cluster::Job& job);
  void check_time_limit(const cluster::Job& job);
  void check_overrun(Duration now, const cluster::Job& job);
  void check_running(const cluster::Job& job);
  void check_service(const cluster::State& state, const cluster::Service& service);
  void check_audit(const cluster::AuditLog& log);

  std::string violation_;
  cluster::AuditHead audit_;                             // up to where the log was seen to be whole
  std::optional<Duration> calm_since_;                   // there are no more faults but those that jobs make
  std::map<cluster::JobId, std::int32_t> killed_nodes_;  // since it is calm
  Duration rebooted_at_{-1};
  std::set<cluster::JobId> acknowledged_;
  std::map<Attempt, Placed> placed_;
  std::map<cluster::JobId, std::int32_t> attempts_;
  std::map<cluster::JobId, std::string> finished_;       // as they are stored
  std::map<std::string, Duration> lost_at_;              // the last time that the node was seen as lost
  std::map<RankKey, std::string> running_;               // and on which node
  std::set<std::pair<std::uint64_t, RankKey>> started_;  // by the life of a disk
  std::set<RankKey> ever_started_;
  std::map<RankKey, std::int32_t> exit_codes_;
  std::map<RankKey, Duration> exited_at_;                                // as far as a disk knows it
  std::map<std::pair<std::string, std::int32_t>, std::int32_t> shares_;  // in use, by node and device
};

}  // namespace tutti::sim
