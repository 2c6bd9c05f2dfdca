// Where people log in, and the door for them.
#include <array>

#include "control/controller/call.hpp"
#include "control/controller/login.hpp"

namespace tutti::controller {
namespace {

constexpr int status_unauthorized = 401;
// An issuer's token is at most 16 KiB.
constexpr std::size_t login_body_bytes_max = 32 << 10;

void refuse_without_issuer(const Call& call) {
  call.refuse(invalid("nobody logs in at this cluster: it has no issuer")
                  .remedy("`tutti controller --oidc-issuer URL --oidc-client-id ID` names one; until then "
                          "TUTTI_TOKEN_FILE names the file of a token"),
              404);
}

void show_login(const Call& call) {
  const Login& login = call.services().login;
  if (!login.is_on()) return refuse_without_issuer(call);
  call.answer(wire::login_settings_json(login.settings()));
}

void log_in(const Call& call) {
  if (!call.services().login.is_on()) return refuse_without_issuer(call);
  auto request = wire::decode_login(call.body());
  if (!request) return call.refuse(request.error());
  call.hand_to(call.services().login_desk, [call, request = std::move(*request)] {
    if (call.is_over()) return;
    const auto reply = call.services().login.log_in(request, call.request().remote);
    if (reply) return call.answer(wire::logged_in_json(*reply));
    if (reply.error().code() == ErrorCode::invalid)
      call.note({.verb = "log in", .object = "token", .refused = reply.error().text()});
    if (reply.error().code() == ErrorCode::invalid) return call.refuse(reply.error(), status_unauthorized);
    if (reply.error().code() == ErrorCode::forbidden) return call.refuse(reply.error());
    call.refuse_for_now(reply.error());
  });
}

}  // namespace

std::span<const Route> login_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/login",
            .need = Need::nothing,
            .rate = RateClass::open_pages,
            .answer = {"LoginSettings"},
            .summary = "The OpenID Connect issuer at which people of this cluster log in",
            .handle = show_login},
      Route{.method = "POST",
            .path = "/login",
            .need = Need::nothing,
            .rate = RateClass::logins,
            .body_bytes_max = login_body_bytes_max,
            .is_question = true,
            .request = {"LoginRequest"},
            .answer = {"LoginReply"},
            .summary = "A token of this cluster for whom the issuer has said that he is",
            .handle = log_in},
  };
  return table;
}

}  // namespace tutti::controller
