// The secret that the ranks of an attempt have and nobody else, for their meeting (TUTTI_WORLD_SECRET): a
// keyed hash of the cluster, the job and the attempt. So nothing of it is stored, and a controller that is
// started anew tells those that start late what it has told the others. Any thread.
#pragma once

#include <string>

#include "control/driver/outbox.hpp"

namespace tutti::controller {

// The key is in `ranks.key` of the folder, and made where it is missing. Where it can be neither read nor
// made, one that is not kept is taken, and the log says what that means.
Result<driver::AttemptSecret> attempt_secrets(const std::string& folder);

}  // namespace tutti::controller
