#include "control/wire/replies.hpp"

#include <nlohmann/json.hpp>

#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"

namespace tutti::wire {

std::string submitted_json(const std::vector<cluster::JobId>& ids) {
  proto::SubmitReply reply;
  for (const auto id : ids) reply.add_ids(id.text());
  return print(reply);
}

// Every `tutti run` reads one of these: without the schema, which takes longer to set up than all the rest.
Result<std::vector<std::string>> decode_submitted(std::string_view text) {
  const auto reply = nlohmann::json::parse(text, nullptr, false);
  std::vector<std::string> ids;
  if (reply.is_object() && reply.contains("ids") && reply["ids"].is_array()) {
    for (const auto& id : reply["ids"]) {
      if (id.is_string()) ids.push_back(id.get<std::string>());
    }
  }
  if (ids.empty()) return invalid("the answer to a submit names no job");
  return ids;
}

std::string error_json(const Error& error) {
  proto::ErrorReply reply;
  reply.mutable_error()->set_message(error.message());
  reply.mutable_error()->set_context(error.context());
  reply.mutable_error()->set_remedy(error.remedy());
  reply.mutable_error()->set_wrong_request(error.code() == ErrorCode::invalid);
  reply.mutable_error()->set_unknown(error.code() == ErrorCode::unknown);
  return print(reply);
}

Error decode_error(int status, std::string_view text) {
  proto::ErrorReply reply;
  if (!parse(text, reply) || reply.error().message().empty())
    return failed("it answered with HTTP status " + std::to_string(status));
  ErrorCode code = ErrorCode::failed;
  if (reply.error().wrong_request()) code = ErrorCode::invalid;
  if (reply.error().unknown()) code = ErrorCode::unknown;
  Error error(code, reply.error().message());
  if (!reply.error().context().empty()) error = std::move(error).within(reply.error().context());
  return std::move(error).remedy(reply.error().remedy());
}

}  // namespace tutti::wire
