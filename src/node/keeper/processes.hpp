// The port to what runs on a node and to the folders that outlive an agent. The keeper calls it; how a rank
// came to its end is told to the keeper as a call of exited(). One loop calls all of it.
#pragma once

#include <map>
#include <string>

#include "base/result.hpp"
#include "control/cluster/step.hpp"
#include "control/wire/messages.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::keeper {

class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  // What an earlier agent left and no controller has acknowledged: each rank runs, or has ended. Those that
  // run are watched from now on. A rank whose start was cut short has ended, and will not start any more.
  virtual Result<std::map<RankKey, cluster::RankStatus>> adopt() = 0;

  // Lays out the folder that was shipped with the attempt; the keeper's prepared() is called with where it
  // is.
  virtual void prepare(const wire::StartRanks& start) = 0;
  // What was prepared for the attempt is not needed any more.
  virtual void release(cluster::JobId job, std::int32_t attempt) = 0;

  // Starts one rank of the attempt in that folder. Its key is on the disk before it runs.
  virtual Result<> start(const wire::StartRanks& attempt, const wire::StartRank& rank,
                         const std::string& workdir) = 0;
  // Asks a rank that runs to end, within its grace period.
  virtual void end(const RankKey& key) = 0;
  // The end of this rank is acknowledged: adopt() does not find it any more.
  virtual void forget(const RankKey& key) = 0;
  // How much room the logs of ranks take that were forgotten. Returns at once.
  virtual Bytes kept() const { return {}; }
  // The job of ranks that were forgotten has ended for good.
  virtual void job_ended(cluster::JobId) {}
  // What a running rank says about itself, for people; "" if nothing.
  virtual std::string said(const RankKey& key) = 0;
  // When its job last saved something in the folder for checkpoints; zero if it is not known.
  virtual Instant saved_at(const RankKey& key) = 0;
};

}  // namespace tutti::keeper
