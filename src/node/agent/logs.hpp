// Sends the logs of ranks to whoever reads them, at a pace the connection can take. Runs on the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "control/wire/messages.hpp"
#include "net/http/loop.hpp"
#include "node/keeper/rank_key.hpp"

namespace tutti::agent {

using keeper::RankKey;

class Logs {
 public:
  struct Calls {
    // Where the logs of an attempt's ranks are: by rank.
    std::function<std::map<std::int32_t, std::string>(cluster::JobId, std::int32_t attempt)> folders;
    std::function<bool(const RankKey&)> running;
    std::function<void(const wire::AgentMessage&)> send;
  };

  Logs(net::Loop& loop, Calls calls) : loop_(loop), calls_(std::move(calls)) {}

  void read(const wire::ReadLogs& request);
  void stop(std::uint64_t stream) { readers_.erase(stream); }
  void stop_all() { readers_.clear(); }
  // Everything the rank wrote goes out before its end is reported.
  void flush(const RankKey& key);

 private:
  struct Source {
    std::string folder;
    std::uint64_t offset = 0;
  };
  struct Reader {
    wire::ReadLogs request;
    std::map<std::int32_t, Source> sources;  // by rank
  };

  void finish(std::uint64_t stream);
  void turn();
  void find_sources(Reader& reader);
  // More may come: it follows, and its ranks have not all ended.
  bool goes_on(const Reader& reader) const;
  // One piece of each source. False when there was nothing to send.
  bool send_some(Reader& reader);
  bool send_piece(const Reader& reader, std::int32_t rank, Source& source);

  net::Loop& loop_;
  Calls calls_;
  std::map<std::uint64_t, Reader> readers_;
  std::shared_ptr<net::Loop::Handle> timer_;
};

}  // namespace tutti::agent
