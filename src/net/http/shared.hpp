// What the connections of a server share. For this module's own files only.
#pragma once

#include <malloc.h>

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "net/http/backlog.hpp"
#include "net/http/incoming.hpp"
#include "net/http/lobby.hpp"
#include "net/http/pace.hpp"
#include "net/http/server.hpp"
#include "net/http/turns.hpp"

namespace tutti::net {

inline void give_memory_back() { ::malloc_trim(0); }

inline std::shared_ptr<Incoming> make_incoming(std::size_t bytes, std::size_t bytes_per_address) {
  return std::make_shared<Incoming>(Incoming::Limits{.bytes = bytes, .bytes_per_address = bytes_per_address},
                                    give_memory_back);
}

// It outlives the last of them.
struct Shared {
  Shared(boost::asio::io_context& loop, const ServerOptions& given, Server::Handler handles,
         Server::Admit admits)
      : context(loop),
        options(given),
        handler(std::move(handles)),
        admit(std::move(admits)),
        lobby(given.unknown_connections, given.unknown_connections_per_address),
        backlog(std::make_shared<Backlog>(given.backlogs_bytes, give_memory_back)),
        pace(std::make_shared<Pace>(loop, stream_writes_at_once)),
        reading(std::make_shared<Pace>(loop, body_reads_at_once)),
        handshakes(std::make_shared<Turns>(loop, handshakes_at_once)),
        bodies(make_incoming(given.bodies_bytes, given.bodies_bytes_per_address)),
        messages(make_incoming(given.messages_bytes, given.messages_bytes_per_address)),
        unknown_messages(
            make_incoming(given.unknown_messages_bytes, given.unknown_messages_bytes_per_address)) {}

  boost::asio::io_context& context;
  const ServerOptions options;
  const Server::Handler handler;
  const Server::Admit admit;
  Lobby lobby;
  // Those who have shown a token, and have asked for nothing since their last answer.
  Lobby idle{std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max()};
  std::shared_ptr<Backlog> backlog;
  std::shared_ptr<Pace> pace;     // of streams
  std::shared_ptr<Pace> reading;  // of bodies
  std::shared_ptr<Turns> handshakes;
  std::shared_ptr<Incoming> bodies;
  std::shared_ptr<Incoming> messages;  // of sockets whose other side is known, and of the others
  std::shared_ptr<Incoming> unknown_messages;
  std::size_t open = 0;  // connections, and how many of each address
  std::map<std::string, std::size_t> open_by_address;
  // Where all of them read what nobody looks at.
  std::array<char, piece_bytes_max> scrap{};
};

// One of the open connections, as long as it is.
class Presence {
 public:
  Presence(Shared& shared, std::string address) : shared_(shared), address_(std::move(address)) {
    ++shared_.open_by_address[address_];
    ++shared_.open;
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() {
    --shared_.open;
    const auto here = shared_.open_by_address.find(address_);
    if (--here->second == 0) shared_.open_by_address.erase(here);
  }

 private:
  Shared& shared_;
  const std::string address_;
};

}  // namespace tutti::net
