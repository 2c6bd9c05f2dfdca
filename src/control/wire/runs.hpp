// The ranks of a stored job, neighbours that are alike as one: a gang of 100,000 is stored in a few
// kilobytes. For this module's own files only.
#pragma once

#include "control/cluster/model.hpp"
#include "proto/tutti.pb.h"

namespace tutti::wire {

void ranks_to_proto(const cluster::Job& from, proto::StoredJob& to);
Result<> ranks_from_proto(const proto::StoredJob& from, cluster::Job& to);

}  // namespace tutti::wire
