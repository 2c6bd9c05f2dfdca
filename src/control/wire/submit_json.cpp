#include "control/wire/submit_json.hpp"

#include <nlohmann/json.hpp>

namespace tutti::wire {
namespace {

using nlohmann::json;

template <class Strings>
json list(const Strings& values) {
  json all = json::array();
  for (const auto& value : values) all.push_back(value);
  return all;
}

// Numbers of 64 bits are text, as everywhere in the API.
json shape_of(const proto::Shape& shape) {
  return {{"ranks", shape.ranks()},         {"ranks_per_node", shape.ranks_per_node()},
          {"nodes", shape.nodes()},         {"gpu_share", shape.gpu_share()},
          {"cpus", shape.cpus()},           {"memory_bytes", std::to_string(shape.memory_bytes())},
          {"gpu_model", shape.gpu_model()}, {"gpu_memory_bytes", std::to_string(shape.gpu_memory_bytes())},
          {"within", shape.within()},       {"rank_counts", list(shape.rank_counts())}};
}

json array_of(const proto::ArrayPart& part) {
  return {{"first", std::to_string(part.first())},
          {"index", part.index()},
          {"count", part.count()},
          {"limit", part.limit()}};
}

json job_of(const proto::JobSpec& spec) {
  json job{{"name", spec.name()},
           {"command", list(spec.command())},
           {"env", list(spec.env())},
           {"workdir", spec.workdir()},
           {"sync", spec.sync()},
           {"output", spec.output()},
           {"user", spec.user()},
           {"queue", spec.queue()},
           {"priority", spec.priority()},
           {"time_limit_ms", std::to_string(spec.time_limit_ms())},
           {"grace_ms", std::to_string(spec.grace_ms())},
           {"restarts", spec.restarts()},
           {"restart_on_failure", spec.restart_on_failure()},
           {"slurm_variables", spec.slurm_variables()},
           {"after", json::array()},
           {"yields", spec.yields()},
           {"secrets", list(spec.secrets())}};
  if (spec.has_shape()) job["shape"] = shape_of(spec.shape());
  if (spec.has_array()) job["array"] = array_of(spec.array());
  if (spec.has_service())
    job["service"] = {{"name", spec.service().name()}, {"version", spec.service().version()}};
  for (const auto& dependency : spec.after())
    job["after"].push_back({{"job", std::to_string(dependency.job())}, {"success", dependency.success()}});
  return job;
}

}  // namespace

std::string submit_json(const proto::SubmitRequest& request) {
  json jobs = json::array();
  for (const auto& spec : request.jobs()) jobs.push_back(job_of(spec));
  const json all{{"jobs", std::move(jobs)}, {"indices", list(request.indices())}, {"key", request.key()}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace tutti::wire
