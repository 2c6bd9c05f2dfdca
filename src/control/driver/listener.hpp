// What the controller hears of its agents: which connection speaks for which node, and which event a message
// becomes. Whoever has the sockets asks it for each frame and does what it says; the simulator asks the same
// one. One thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/driver/speakers.hpp"
#include "control/wire/messages.hpp"

namespace tutti::driver {

class Listener {
 public:
  // What follows of one frame. Nothing of it: the frame is passed over.
  struct Heard {
    std::optional<cluster::Event> event;    // for the core; beside a log, that the node is there
    std::optional<wire::AgentMessage> log;  // for whoever reads logs: a LogChunk or a LogEnd
    std::string refused;                    // not "": the connection is to be closed, for this reason
    std::string claimed = {};               // then: the node that it wanted to be and is not; "": none
    Connection replaced = 0;                // an older connection that is to be closed as well; 0: none
    std::uint64_t echo = 0;                 // to be sent back when the event has had its turn; 0: nothing
    std::vector<wire::ControllerMessage>
        answers;           // on the same connection, before it is closed if it is refused
    Connection first = 0;  // who has the name that another one wanted is told so; 0: nobody
    wire::Notice to_the_first;
    std::string note;  // for the controller's log; "": nothing
  };

  // Whose controller this is, and the identities of the agents that spoke before it was restarted, by node.
  // `now`, here and below, is a time that only goes forward.
  void expect(std::string cluster, const std::map<std::string, std::string>& agents, Instant now);

  // Of these nodes nobody speaks without having proved to be one.
  void protect(std::function<bool(const std::string& node)> is_protected) {
    is_protected_ = std::move(is_protected);
  }

  // A node whose ranks do not run as the accounts of their users, or that cannot keep them apart in all that
  // is promised, takes no work.
  void demand_isolation() { demands_isolation_ = true; }

  // A new connection, from this address. Where its other side has proved to be a node, it may speak for that
  // one alone; "": for any.
  void open(Connection connection, std::string remote, std::string proven_node = "");
  Heard receive(Connection connection, std::string_view frame, Instant now = {});
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
    Instant told_at;   // an event last said that the node is there
    // What its clock and ours are apart, with the way of the message that was read the soonest.
    std::optional<Duration> apart;
    std::string proven_node = {};
    bool keeps_apart = false;  // as its Hello says
    std::string lacks = {};
  };

  // How much later than the soonest a message was read that was sent at that time.
  static Duration lateness(Known& known, Duration sent, Instant now);

  // What keeps it from taking work: what it says itself, or that it promises less than is demanded.
  std::string illness(const Known& known, std::string told) const;
  Heard greet(Connection connection, Known& known, cluster::Hello hello, Instant now);
  // The name is somebody else's: all three that are concerned are told, so that whoever reads one log can
  // mend it.
  Heard turn_away(const Known& known, const cluster::Hello& hello, const std::string& why) const;

  std::function<bool(const std::string& node)> is_protected_;  // null: none is
  bool demands_isolation_ = false;
  std::string cluster_;
  Speakers speakers_;
  std::map<Connection, Known> connections_;
};

}  // namespace tutti::driver
