// A submit as JSON, field by field: what `tutti run` does each time. The schema, from which print() reads the
// fields, takes longer to set up than all the rest of that command. For this module's own files only.
#pragma once

#include <string>

#include "proto/tutti.pb.h"

namespace tutti::wire {

// The same as print().
std::string submit_json(const proto::SubmitRequest& request);

}  // namespace tutti::wire
