// Whether the loop that hears the agents does hear them: it has read what has come. Whoever has the sockets
// says what it sees of each, and does what follows; the simulator asks the same one. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "control/cluster/step.hpp"
#include "control/driver/speakers.hpp"

namespace tutti::driver {

// An agent speaks at least once in this time.
constexpr Duration agent_pause_max = cluster::heartbeat_every + cluster::heartbeat_every / 2;
// One that has, and is not read, is believed to be there for so long.
constexpr Duration excused_max = 10 * cluster::lease;
// So many that are not read, and a part of all that would be a mass if they were silent, are no one's own
// doing.
constexpr std::size_t unread_nodes_min = 3;

class Hearing {
 public:
  // The connection of an agent, as it is now.
  struct Line {
    Connection connection = 0;
    Instant heard_at;                  // its last message
    std::uint64_t reads = 0;           // how often something of it was read
    std::string_view node;             // for which it speaks; "": for none
    std::function<bool()> has_unread;  // what has come and is not read; asked only where it matters
  };
  struct Verdict {
    bool awake = true;
    std::vector<std::string> excused = {};  // nodes that are there: they are not silent, they are not read
  };

  // Of all connections, again and again. `now` only goes forward.
  Verdict judge(const std::vector<Line>& lines, Instant now);

 private:
  struct Read {
    std::uint64_t reads = 0;  // as they were when it was looked last
    Instant at;               // when there were more than before
  };

  std::map<Connection, Read> read_;
  Instant judged_at_;
};

}  // namespace tutti::driver
