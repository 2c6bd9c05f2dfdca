// Who is on which node, and which ports of its address they have. A part of the index.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "control/cluster/change.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

class Residents {
 public:
  void changed(const Change& change);

  const std::set<sched::JobId>& jobs_on(const std::string& node) const;
  bool port_taken(const std::string& address, std::int32_t port) const;

  friend bool operator==(const Residents&, const Residents&) = default;

 private:
  using Port = std::pair<std::string, std::int32_t>;  // with its address

  std::map<std::string, std::set<sched::JobId>> on_node_;
  std::map<sched::JobId, Port> ports_;    // of rank 0
  std::map<Port, std::int32_t> sharers_;  // of each of those ports
};

}  // namespace tutti::cluster
