// How a rank came to its end, as its shim has left it in the rank's folder. Any thread; it reads files that
// are the rank's.
#pragma once

#include <optional>
#include <string>

#include "control/cluster/model.hpp"

namespace tutti::agent {

struct RankEnd {
  cluster::RankStatus status;
  Instant at;  // on this node's clock; zero if it is not known
};

// What the agent itself has seen of an end.
struct SeenEnd {
  Instant heard_at;          // when it came to hear of it
  Instant lived_at;          // when it last saw that the rank had not ended; zero if it never did
  bool shim_killed = false;  // and has not told that all is on record
};

// When the rank ended. What its shim wrote is nearer to the truth than when the agent heard of it, which may
// have been stopped meanwhile. But it lies in the rank's folder, and no rank has ended before it was seen to
// live, nor is one believed that has killed its shim.
Instant believed_end(const RankEnd& left, const SeenEnd& seen);

// Nothing if the shim has left no end. With the last lines of its log, if it failed.
std::optional<RankEnd> end_in(const std::string& folder);

// The same end if only the folder tells that what the job has saved is not on this node: its shim was killed,
// or was an earlier agent's. It may start here again, which shows how it is.
cluster::RankStatus without_witness(cluster::RankStatus status);

}  // namespace tutti::agent
