#include "control/wire/replies.hpp"

#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"

namespace tutti::wire {

std::string submitted_json(const std::vector<cluster::JobId>& ids) {
  proto::SubmitReply reply;
  for (const auto id : ids) reply.add_ids(id.text());
  return print(reply);
}

Result<std::vector<std::string>> decode_submitted(std::string_view text) {
  proto::SubmitReply reply;
  if (auto parsed = parse(text, reply); !parsed) return std::move(parsed).error();
  return strings(reply.ids());
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
