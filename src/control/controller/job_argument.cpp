#include "control/controller/job_argument.hpp"

#include "base/text.hpp"

namespace tutti::controller {

Result<cluster::JobId> job_argument(const Call& call) {
  const std::string& id = call.argument("id");
  auto job = parse_id<sched::JobTag>(id);
  if (!job)
    return invalid("there is no job '" + valid_utf8(id.substr(0, 64)) + "'").remedy(job.error().remedy());
  return job;
}

}  // namespace tutti::controller
