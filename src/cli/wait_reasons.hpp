// Tells somebody who follows a job that waits why it does, once for each reason. Main thread.
#pragma once

#include <chrono>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/cluster.hpp"

namespace tutti::cli {

class WaitReasons {
 public:
  WaitReasons(const Cluster& cluster, std::string job) : cluster_(cluster), job_(std::move(job)) {}

  // Several times a second, with the job as it is known: a JobView.
  void look(const nlohmann::json& job);

 private:
  std::string reason_now() const;

  const Cluster& cluster_;
  std::string job_;
  bool waits_ = false;
  std::chrono::steady_clock::time_point next_look_;
  Duration look_every_{};
  std::string told_;
};

}  // namespace tutti::cli
