// Which connection speaks for which node. A node has one agent and an agent one connection, but a network
// that breaks and heals leaves older ones behind, and what was sent on those may still arrive. And there may
// be a second agent that took the name by mistake, which is kept out as long as the first one lives. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "control/cluster/step.hpp"

namespace tutti::driver {

// Numbered from 1 in the order in which they were opened: an agent opens one only after the one before it is
// closed on its side.
using Connection = std::uint64_t;

// An agent, as far as it can be told apart from others.
struct Who {
  std::string identity;  // of its folder: random, made once
  std::string
      machine;  // host, boot and place of the folder, which may have been copied: "gpu-17 5a1b… 2049:77"

  friend bool operator==(const Who&, const Who&) = default;
};

// The name of its host, for people.
std::string host_of(const std::string& machine);

// An open connection on which nothing was heard for this long keeps nobody else out: its host may be gone.
constexpr Duration silence_max = 10s;
// An agent that is gone, or was there before the controller began, may come back for this long.
constexpr Duration return_time_max = cluster::lease;
// Of so many nodes it is known who spoke for them last; beyond it those are forgotten that may not come back.
constexpr std::size_t speakers_kept = 16'384;

class Speakers {
 public:
  struct Greeting {
    bool accepted = false;    // else it is older than what the node has said since, and should be closed
    Connection replaced = 0;  // has no say any more and should be closed; 0: none
  };

  // Why this agent may not speak for the node now, "" if it may: another one that lives has the name.
  std::string refusal(const std::string& node, const Who& who, Instant now) const;
  // The connection says Hello for the node; `now` is a time that only goes forward. One that is refused is
  // not accepted.
  Greeting greet(const std::string& node, Connection connection, const Who& who = {}, Instant now = {});
  // Something has come over it.
  void hear(const std::string& node, Connection connection, Instant now);
  // This agent spoke for the node before the controller was restarted, and is likely to do so again.
  void expect(const std::string& node, const Who& who, Instant now);

  bool speaks(const std::string& node, Connection connection) const;
  std::optional<Connection> of(const std::string& node) const;
  // It is closed. True if it spoke for the node.
  bool drop(const std::string& node, Connection connection);

  std::map<std::string, Connection> all() const;
  std::size_t known() const { return speakers_.size(); }

 private:
  struct Speaker {
    Connection newest = 0;
    bool open = false;
    std::optional<Who> who;  // nobody has spoken yet if there is none
    Instant heard_at;
  };
  // Drops closed ones, once there are many.
  void forget_closed(Instant now);

  // Also those that are closed: an older connection must not come back after the newest one is gone.
  std::map<std::string, Speaker> speakers_;
  std::size_t forget_at_ = speakers_kept;
  Connection forgotten_ = 0;  // the newest of those that were: nobody who is older speaks for a node anew
};

}  // namespace tutti::driver
