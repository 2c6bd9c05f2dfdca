// What the REST API is asked, in JSON: what comes in. Decoding checks what can be checked without the
// cluster. Pure functions: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/step.hpp"

namespace tutti::wire {

// Within the limits of cluster/limits.hpp.
Result<cluster::Submit> decode_submit(std::string_view json);
// Refuses what is not UTF-8, which JSON cannot carry.
Result<std::string> encode_submit(const cluster::Submit& submit);
Result<bool> decode_drain(std::string_view json);
// At least one, and not more than a page of them.
Result<std::vector<cluster::JobId>> decode_remove_jobs(std::string_view json);
// All that somebody may, in place of what he could before.
Result<cluster::SetPerson> decode_person(const people::Name& name, std::string_view json);
// A token without id, hash and times. `life`: zero is for ever.
struct TokenWish {
  people::Token token;
  Duration life = people::token_life_default;
};
Result<TokenWish> decode_token(std::string_view json);
// Numbers in range; whether they fit those of other queues is for the cluster to say.
Result<cluster::SetQueue> decode_queue(const std::string& name, std::string_view json);
// A replica without its user, and without a key.
Result<cluster::Serve> decode_serve(const cluster::ServiceName& name, std::string_view json);
Result<cluster::ScaleService> decode_scale(const cluster::ServiceName& name, std::string_view json);
Result<cluster::GatewayTold> decode_told(std::string_view json);
// Links with names and numbers in range; whether there are such nodes is for the cluster to say.
Result<std::vector<cluster::Link>> decode_fabric(std::string_view json);

}  // namespace tutti::wire
