// What is asked for with a job, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "control/cluster/shared.hpp"
#include "control/sched/sched.hpp"

namespace tutti::cluster {

using sched::JobId;
using QueueName = std::string;

inline const QueueName default_queue = "default";

struct Dependency {
  JobId job;
  bool success = false;  // it must have succeeded, not only ended

  friend bool operator==(const Dependency&, const Dependency&) = default;
};

// One element of an array job: element `index` of the array whose first job is `first`.
struct ArrayPart {
  JobId first;
  std::int32_t index = 0;
  std::int32_t count = 0;
  std::int32_t limit = 0;  // how many run at once; 0: all

  friend bool operator==(const ArrayPart&, const ArrayPart&) = default;
};

// One replica of a service: of which, and what it serves. Set by the state machine alone.
struct ServicePart {
  std::string name;
  std::int32_t version = 0;

  friend bool operator==(const ServicePart&, const ServicePart&) = default;
};

struct JobSpec {
  std::string name;
  Shared<std::string> command;
  Shared<std::string> env;  // K=V
  std::string workdir;      // where ranks start
  std::string sync;         // hash of the manifest of a shipped folder, "" for none
  std::string output;       // a file for the logs of all ranks as well, "" for none
  std::string user;
  sched::Shape shape;
  QueueName queue = default_queue;
  std::int32_t priority = 0;
  Duration time_limit{};                // 0: none
  Duration grace = 10s;                 // between SIGTERM and SIGKILL
  std::int32_t restarts = 3;            // after the loss of a node
  std::int32_t restart_on_failure = 0;  // after a failure of the program's own
  bool slurm_variables = false;         // ranks see SLURM_* too
  bool yields = false;                  // saves its work when asked to end: may be put aside and resumed
  std::optional<ArrayPart> array;
  Shared<Dependency> after;
  Shared<std::string> secrets = {};  // their names
  std::optional<ServicePart> service = {};

  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

}  // namespace tutti::cluster
