// Sends the logs of ranks to whoever reads them, at a pace the connection can take. Runs on the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/ranks.hpp"
#include "net/loop.hpp"
#include "wire/messages.hpp"

namespace tutti::agent {

class Logs {
 public:
  Logs(net::Loop& loop, const Ranks& ranks, std::function<void(wire::AgentMessage)> send);

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
  const Ranks& ranks_;
  std::function<void(wire::AgentMessage)> send_;
  std::map<std::uint64_t, Reader> readers_;
  std::shared_ptr<net::Loop::Handle> timer_;
};

}  // namespace tutti::agent
