// The job that a path names, for the handlers of several families.
#pragma once

#include "control/controller/call.hpp"

namespace tutti::controller {

// The {id} of the path; what is no id is a job that is not there.
Result<cluster::JobId> job_argument(const Call& call);

}  // namespace tutti::controller
