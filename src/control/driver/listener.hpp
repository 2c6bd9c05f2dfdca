// What the controller hears of its agents: which connection speaks for which node, and which event a message
// becomes. Whoever has the sockets asks it for each frame and does what it says; the simulator asks the same
// one. One thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "control/driver/speakers.hpp"
#include "control/wire/messages.hpp"

namespace tutti::driver {

class Listener {
 public:
  // What follows of one frame. Nothing of it: the frame is passed over.
  struct Heard {
    std::optional<cluster::Event> event;    // for the core
    std::optional<wire::AgentMessage> log;  // for whoever reads logs: a LogChunk or a LogEnd
    std::string refused;                    // not "": the connection is to be closed, for this reason
    Connection replaced = 0;                // an older connection that is to be closed as well; 0: none
    std::uint64_t echo = 0;                 // to be sent back when the event has had its turn; 0: nothing
  };

  // A new connection, from this address.
  void open(Connection connection, std::string remote);
  Heard receive(Connection connection, std::string_view frame);
  // It is closed: the node that it spoke for, if it did.
  std::optional<std::string> close(Connection connection);

  // The node that the connection has named in its Hello, "" before.
  const std::string& node_of(Connection connection) const;
  // The connection that speaks for the node now.
  std::optional<Connection> speaker(const std::string& node) const { return speakers_.of(node); }
  std::map<std::string, Connection> speakers() const { return speakers_.all(); }

 private:
  struct Known {
    std::string remote;
    std::string node;  // "" before its Hello
  };

  Heard greet(Connection connection, Known& known, cluster::Hello hello);

  Speakers speakers_;
  std::map<Connection, Known> connections_;
};

}  // namespace tutti::driver
