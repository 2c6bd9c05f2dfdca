// Who is on which node, and which ports of its address they have. A part of the index.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "control/cluster/change.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

// Ranks of one node are neighbours.
struct RankRun {
  std::int32_t first = 0;
  std::int32_t count = 0;

  friend bool operator==(const RankRun&, const RankRun&) = default;
};

class Residents {
 public:
  void changed(const Change& change);

  const std::set<sched::JobId>& jobs_on(const std::string& node) const;
  // None if the job is not there.
  RankRun ranks_on(const std::string& node, sched::JobId job) const;
  bool port_taken(const std::string& address, std::int32_t port) const;

  friend bool operator==(const Residents&, const Residents&) = default;

 private:
  using Port = std::pair<std::string, std::int32_t>;  // with its address

  struct Guests {
    std::set<sched::JobId> jobs;
    std::map<sched::JobId, RankRun> ranks;

    friend bool operator==(const Guests&, const Guests&) = default;
  };

  std::map<std::string, Guests> on_node_;
  std::map<sched::JobId, Port> ports_;    // of rank 0
  std::map<Port, std::int32_t> sharers_;  // of each of those ports
};

}  // namespace tutti::cluster
