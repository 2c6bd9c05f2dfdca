// Protobuf's JSON mapping, with the names of the schema. For this module's own files only.
#pragma once

#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "base/result.hpp"

namespace tutti::wire {

std::string print(const google::protobuf::Message& message);
// What is not the JSON of such a message is the request's fault.
Result<> parse(std::string_view text, google::protobuf::Message& message);

}  // namespace tutti::wire
