// Starts of ranks that are under way. A start makes files and a process, and the disk below it may stand
// still: it runs on one of a few threads, so that the agent's loop goes on and one that is stuck does not
// hold up the others. What takes too long is given up, as long as it is sure then that it will never run.
// Used by the agent's loop only.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http/loop.hpp"
#include "node/agent/lane.hpp"
#include "node/agent/rank_start.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::agent {

struct StartLimits {
  std::size_t threads_max = 4;
  Duration slow = 5s;       // a node whose starts take longer is ill
  Duration time_max = 20s;  // then they are given up, and the work goes elsewhere
  Duration look_every = 1s;
};

class Starts {
 public:
  using Work = std::function<Result<StartedShim>(const MayRun&)>;
  // On the loop, once for each start that was not stopped.
  using Done = std::function<void(const keeper::RankKey&, Result<std::shared_ptr<StartedShim>>)>;

  Starts(net::Loop& loop, StartLimits limits, Done done);

  // The work must not refer to anything that could go before it: it may be stuck for ever.
  void begin(const keeper::RankKey& key, Work work);
  // True if it was under way and will never run now; done() is not called for it.
  bool stop(const keeper::RankKey& key);

  // Some have not come back yet, such that were stopped or given up included: they may still write files.
  bool under_way() const { return !starts_.empty(); }
  // "" if starts are as quick as they should be. The text does not change while the cause is the same.
  std::string illness() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Start;

  // Since when nothing has been heard of it.
  Clock::time_point quiet_since(const Start& start) const;
  void came_back(const keeper::RankKey& key, Result<std::shared_ptr<StartedShim>> outcome);
  void look();

  net::Loop& loop_;
  StartLimits limits_;
  Done done_;
  std::map<keeper::RankKey, std::shared_ptr<Start>> starts_;
  Clock::time_point last_back_;
  std::shared_ptr<net::Loop::Handle> timer_;
  Lane lane_;
};

}  // namespace tutti::agent
