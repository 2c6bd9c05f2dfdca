// Sends the logs of ranks to whoever reads them, as fast as they read: each reader has credit, which grows as
// it takes what was sent, and what nobody has taken yet stays in the log on the disk. Runs on the agent's
// loop; the files are the ranks' to spoil, and are read on a lane.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/wire/messages.hpp"
#include "net/http/loop.hpp"
#include "node/agent/lane.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::agent {

using keeper::RankKey;

class Logs {
 public:
  struct Calls {
    // The ranks of an attempt that have not ended.
    std::function<std::set<std::int32_t>(cluster::JobId, std::int32_t attempt)> running;
    // The connection has taken what was sent before.
    std::function<bool()> room;
    std::function<void(const wire::AgentMessage&)> send;
  };

  Logs(net::Loop& loop, std::string ranks_folder, Calls calls);

  void read(const wire::ReadLogs& request);
  void credit(const wire::LogCredit& credit);
  void stop(std::uint64_t stream);
  void stop_all() { readers_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  // A stream reads each attempt for itself: the next may begin before all of the one before has been sent.
  using Key = std::pair<std::uint64_t, std::int32_t>;  // stream, attempt
  struct Source {
    std::string folder;
    std::uint64_t offset = 0;
    // Who does not follow reads as far as it went when he asked: a rank that prints on does not hold him.
    std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
    bool broken = false;
  };
  using Sources = std::map<std::int32_t, Source>;  // by rank
  struct Reader {
    wire::ReadLogs request;
    Sources sources;
    std::int64_t credit_bytes = 0;
    std::uint64_t serial = 0;  // tells it from an earlier one of the same key, which a look may come back for
    bool begun = false;
    bool looking = false;
    bool quiet = false;           // the last look has found nothing new
    bool lacks_one = false;       // a rank had not ended at the last look, and no log was there
    Clock::time_point asked_at;   // for the look
    std::int32_t last_rank = -1;  // that was read: the next look begins behind it, so that none is left out
    std::string unread;           // what could not be read and why
  };
  // One look at the logs of a reader, on the lane: what it was given, and what it has found.
  struct Look {
    std::string ranks_folder;
    wire::ReadLogs request;
    Sources sources;
    std::set<std::int32_t> running;
    std::int64_t credit_bytes = 0;
    std::int32_t last_rank = -1;
    bool first = false;
    bool finds = false;  // there may be logs that it does not know yet
    std::vector<wire::LogChunk> chunks;
    std::string unread;

    void run();
    // Of the ranks that are asked for: has one not ended, and one of those no log that is known?
    bool runs_one() const;
    bool lacks_one() const;

   private:
    bool wants(std::int32_t rank) const;
    void find();
    void read(std::int32_t rank, Source& source);
  };

  void finish(const wire::ReadLogs& request);
  void turn();
  void look(const Key& key);
  void looked(const Key& key, std::uint64_t serial, Look look);
  void could_not_look(const Key& key, std::uint64_t serial, const std::string& why);
  bool is_stuck(const Reader& reader) const;

  net::Loop& loop_;
  std::string ranks_folder_;
  Calls calls_;
  std::map<Key, Reader> readers_;
  std::uint64_t next_serial_ = 1;
  std::shared_ptr<net::Loop::Handle> timer_;
  std::shared_ptr<net::Loop::Handle> room_timer_;
  Lane lane_;
};

}  // namespace tutti::agent
