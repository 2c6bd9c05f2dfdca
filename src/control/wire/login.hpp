// Logging in: what `tutti login` asks a controller and is answered, both ends of it. Pure functions: any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::wire {

// Where people of this cluster prove who they are.
struct LoginSettings {
  std::string issuer;
  std::string client_id;
  std::string scopes;
};

struct LoginRequest {
  std::string id_token;  // of the issuer
  std::string nonce;     // that has to stand in it; "": none was sent
};

struct LoginReply {
  std::string token;  // of this cluster
  std::string user;
};

std::string login_settings_json(const LoginSettings& settings);
Result<LoginSettings> decode_login_settings(std::string_view json);

std::string login_json(const LoginRequest& request);
Result<LoginRequest> decode_login(std::string_view json);

std::string logged_in_json(const LoginReply& reply);
Result<LoginReply> decode_logged_in(std::string_view json);

}  // namespace tutti::wire
