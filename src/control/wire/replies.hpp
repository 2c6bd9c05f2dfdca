// What a request is answered with when it changes something, or when it is refused: both ends of it. Pure
// functions: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "control/cluster/model.hpp"

namespace tutti::wire {

std::string submitted_json(const std::vector<cluster::JobId>& ids);
Result<std::vector<std::string>> decode_submitted(std::string_view json);

std::string error_json(const Error& error);
// The error that an answer with a status of 400 or more carries.
Error decode_error(int status, std::string_view json);

}  // namespace tutti::wire
