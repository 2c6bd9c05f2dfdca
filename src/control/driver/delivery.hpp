// What becomes visible after a commit. Plain data.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/cluster/step.hpp"
#include "control/people/door.hpp"

namespace tutti::driver {

struct Delivery {
  struct Message {
    std::string node;
    std::string frame;
    cluster::JobId job;  // of a start: log readers follow it
    std::int32_t attempt = 0;
    bool start = false;
  };
  struct JobChange {
    cluster::JobId job;
    bool finished = false;
    std::string json;
    std::string queue;  // whose viewers see it,
    std::string user;   // and whose it is
  };
  std::vector<Message> messages;
  std::vector<JobChange> jobs;
  std::vector<std::string> nodes;  // JSON of changed nodes
  people::DoorChanges doors;       // before anything else: a token that was revoked opens nothing after this
  // Nodes with a certificate: those that have changed, and nothing of those that are gone; or all there are.
  std::map<cluster::NodeName, std::optional<cluster::Member>> members;
  bool all_members = false;
  bool resync = false;  // what agents said last may be lost: ask them again

  bool empty() const {
    return messages.empty() && jobs.empty() && nodes.empty() && members.empty() && !all_members &&
           doors.empty() && !resync;
  }
};

}  // namespace tutti::driver
