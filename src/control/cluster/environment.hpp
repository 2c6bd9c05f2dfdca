// The variables that the ranks of a gang see beyond the job's own: what all ranks of one node share stands
// apart from what is a rank's own, so that a message says it once and describing N ranks takes N steps. Pure:
// any thread, while the state stays as it is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "control/cluster/model.hpp"

namespace tutti::cluster {

class GangEnvironment {
 public:
  // Of a job that holds places. Both must outlive it.
  GangEnvironment(const State& state, const Job& job);

  // Alike for all its ranks on this node.
  std::vector<std::string> of_node(const NodeName& node) const;
  // What a rank has of its own.
  std::vector<std::string> of_rank(std::int32_t rank) const;

 private:
  // Ranks of one node are neighbours: they form one run.
  struct Run {
    std::int32_t number = 0;  // of the node in the gang
    std::int32_t first = 0;   // rank
    std::int32_t count = 0;
  };

  const State& state_;
  const Job& job_;
  std::map<NodeName, Run> runs_;
  std::string node_list_;  // only where somebody reads it
};

}  // namespace tutti::cluster
