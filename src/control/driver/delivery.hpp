// What becomes visible after a commit. Plain data.
#pragma once

#include <string>
#include <vector>

#include "control/cluster/step.hpp"

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
  };
  std::vector<Message> messages;
  std::vector<JobChange> jobs;
  std::vector<std::string> nodes;  // JSON of changed nodes
  bool resync = false;             // what agents said last may be lost: ask them again

  bool empty() const { return messages.empty() && jobs.empty() && nodes.empty() && !resync; }
};

}  // namespace tutti::driver
