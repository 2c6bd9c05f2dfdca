// Protobuf's JSON mapping, with the names of the schema. For this module's own files only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "base/result.hpp"

namespace tutti::wire {

// Of one body, those inside others counted too: an array of 10,000 elements of which each is written out.
constexpr std::size_t body_values_max = 500'000;

std::string print(const google::protobuf::Message& message);
// Two objects as one. Neither is empty.
std::string beside(std::string first, const std::string& second);
// What is not the JSON of such a message is the request's fault.
Result<> parse(std::string_view text, google::protobuf::Message& message);

}  // namespace tutti::wire
