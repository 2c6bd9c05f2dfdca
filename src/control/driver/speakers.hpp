// Which connection speaks for which node. A node has one agent and an agent one connection, but a network
// that breaks and heals leaves older ones behind, and what was sent on those may still arrive. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tutti::driver {

// Numbered from 1 in the order in which they were opened: an agent opens one only after the one before it is
// closed on its side.
using Connection = std::uint64_t;

class Speakers {
 public:
  struct Greeting {
    bool accepted = false;    // else it is older than what the node has said since, and should be closed
    Connection replaced = 0;  // has no say any more and should be closed; 0: none
  };

  // The connection says Hello for the node.
  Greeting greet(const std::string& node, Connection connection);
  bool speaks(const std::string& node, Connection connection) const;
  std::optional<Connection> of(const std::string& node) const;
  // It is closed. True if it spoke for the node.
  bool drop(const std::string& node, Connection connection);

  std::map<std::string, Connection> all() const;

 private:
  struct Speaker {
    Connection newest = 0;
    bool open = false;
  };
  // Also those that are closed: an older connection must not come back after the newest one is gone.
  std::map<std::string, Speaker> speakers_;
};

}  // namespace tutti::driver
