// The port to what runs on a node and to the folders that outlive an agent. The keeper calls it; whether a
// rank has started, and how it came to its end, is told to the keeper as calls of started() and exited(). One
// loop calls all of it, and that loop keeps the node's lease: nothing here waits for a disk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/step.hpp"
#include "control/wire/messages.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::keeper {

// What an agent's folder knows of the cluster that it belongs to.
struct Membership {
  std::string cluster;          // "" as long as it has joined none
  std::uint64_t jobs_seen = 0;  // the highest id of a job of it that was started here

  friend bool operator==(const Membership&, const Membership&) = default;
};

// What can be seen of a running rank.
struct Sight {
  std::string said;  // about itself, for people; "" if nothing
  Instant saved_at;  // when its job last saved something in the folder for checkpoints; zero if not known
};

// What kept a start back that was asked for rightly.
enum class Hindrance {
  node,     // it is at fault
  job,      // the node is well, and cannot start this job
  passing,  // nobody's fault: it may go well the next time
};

class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  // What an earlier agent left and no controller has acknowledged: each rank runs, or has ended. Those that
  // run are watched from now on. A rank whose start was cut short has ended, and will not start any more.
  virtual Result<std::map<RankKey, cluster::RankStatus>> adopt() = 0;

  // Whether the node can bear these ranks now. If not, they are prepared first, whatever came with them.
  virtual bool has_room(const wire::StartRanks&) { return true; }
  // Waits for room, and lays out the folder that was shipped with the attempt; the keeper's prepared() is
  // called with where it is, or where the attempt starts without one.
  virtual void prepare(const wire::StartRanks& start) = 0;
  // Nobody waits for the attempt's folder any more. prepared() is called all the same, and soon if it can be.
  virtual void stop_preparing(cluster::JobId job, std::int32_t attempt) = 0;
  // What was prepared for the attempt is not needed any more.
  virtual void release(cluster::JobId job, std::int32_t attempt) = 0;

  // It holds over a restart of the agent: its cluster from before the first rank of it starts.
  virtual void remember(const Membership& membership) = 0;
  // All ranks have ended, and they were of that cluster: what is left of them goes where no rank of another
  // one meets it. The keeper's went_aside() is called with how it went.
  virtual void put_aside(const std::string& cluster) = 0;

  // The ports that are kept free for gangs whose rank 0 will be here.
  virtual std::vector<std::int32_t> free_ports() const = 0;
  // Hands the attempt's port to its rank 0, which is about to start, or another where somebody uses it and
  // all of the gang is here. Fails if there is none.
  virtual Result<std::int32_t> take_port(const wire::StartRanks& attempt) = 0;

  // Starts these ranks of the attempt in that folder. The keeper's started() is called once for each of them,
  // never from in here: a rank runs, or will not run any more. Its key is on the disk before it runs. The
  // error is `unknown` where such a rank was started here before and its end acknowledged.
  virtual void start(const wire::StartRanks& attempt, const std::string& workdir) = 0;
  // Asks a rank that runs to end, within its grace period or at once. Of a start that is under way it stops
  // what can still be stopped for sure, which is then an error of that start; what it cannot stop starts.
  virtual void end(const RankKey& key, bool at_once) = 0;
  // How long ago a rank ended that has; zero if that is not known.
  virtual Duration ended_ago(const RankKey&) const { return {}; }
  // How long a rank that runs has, on a clock that nobody sets; it may be off by the same each time it is
  // asked for, and that of a later agent too. Zero if that is not known.
  virtual Duration ran(const RankKey&) const { return {}; }
  // The end of this rank is acknowledged: adopt() does not find it any more.
  virtual void forget(const RankKey& key) = 0;
  // How much room the logs of ranks take that were forgotten. Returns at once.
  virtual Bytes kept() const { return {}; }
  // The job of ranks that were forgotten has ended for good.
  virtual void job_ended(cluster::JobId) {}
  // Looks at what these running ranks say and have saved, and tells the keeper's seen() later, or not at all:
  // the files are theirs, or on a disk that all share, and may keep whoever reads them waiting.
  virtual void look(const std::vector<RankKey>& running) = 0;
};

}  // namespace tutti::keeper
