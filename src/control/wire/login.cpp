#include "control/wire/login.hpp"

#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"

namespace tutti::wire {

std::string login_settings_json(const LoginSettings& settings) {
  proto::LoginSettings message;
  message.set_issuer(settings.issuer);
  message.set_client_id(settings.client_id);
  message.set_scopes(settings.scopes);
  return print(message);
}

Result<LoginSettings> decode_login_settings(std::string_view text) {
  proto::LoginSettings message;
  if (auto parsed = parse(text, message); !parsed) return std::move(parsed).error().as(ErrorCode::failed);
  if (message.issuer().empty() || message.client_id().empty())
    return failed("the controller names no issuer to log in at");
  return LoginSettings{message.issuer(), message.client_id(), message.scopes()};
}

std::string login_json(const LoginRequest& request) {
  proto::LoginRequest message;
  message.set_id_token(request.id_token);
  message.set_nonce(request.nonce);
  return print(message);
}

Result<LoginRequest> decode_login(std::string_view text) {
  proto::LoginRequest message;
  if (auto parsed = parse(text, message); !parsed) return std::move(parsed).error();
  if (message.id_token().empty()) return invalid("it is missing").within("id_token");
  return LoginRequest{message.id_token(), message.nonce()};
}

std::string logged_in_json(const LoginReply& reply) {
  proto::LoginReply message;
  message.set_token(reply.token);
  message.set_user(reply.user);
  return print(message);
}

Result<LoginReply> decode_logged_in(std::string_view text) {
  proto::LoginReply message;
  if (auto parsed = parse(text, message); !parsed) return std::move(parsed).error().as(ErrorCode::failed);
  if (message.token().empty()) return failed("the controller has sent no token");
  return LoginReply{message.token(), message.user()};
}

}  // namespace tutti::wire
