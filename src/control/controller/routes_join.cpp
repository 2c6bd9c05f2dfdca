// How a server becomes a node: tokens for it, the certificate that it gets for one, and the end of that.
#include <array>

#include "base/bytes.hpp"
#include "base/clock/clock.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "control/controller/call.hpp"
#include "control/controller/random_text.hpp"
#include "control/controller/registrar.hpp"
#include "control/wire/membership.hpp"
#include "control/wire/messages.hpp"
#include "net/sync/digest.hpp"

namespace tutti::controller {
namespace {

// Whoever looks for secrets in files finds it by this.
constexpr std::string_view token_prefix = "tutti_join_";
constexpr std::size_t join_token_bytes = 32;
constexpr std::size_t token_id_digits = 12;
constexpr std::size_t token_id_bytes_max = 64;
constexpr int forbidden = 403;

std::string hash_of_token(std::string_view token) { return sync::hash_bytes(as_bytes(token)); }

void make_join_token(const Call& call) {
  const Registrar* registrar = call.registrar();
  if (registrar == nullptr) return;
  const auto wish = wire::decode_join_token_wish(call.body());
  if (!wish) return call.refuse(wish.error());
  auto secret = random_hex(join_token_bytes);
  if (!secret) return call.refuse(secret.error());
  wire::MadeJoinToken made;
  made.token = std::string(token_prefix) + *secret;
  made.address = registrar->address();
  made.authority = registrar->fingerprint();
  made.uses = wish->uses;
  made.expires_at = now_on_the_wall() + wish->life;
  cluster::JoinToken token;
  token.hash = hash_of_token(made.token);
  token.id = made.id = token.hash.substr(0, token_id_digits);
  token.name_pattern = wish->name_pattern;
  token.uses_left = wish->uses;
  call.change(cluster::MakeJoinToken{std::move(token), wish->life}, wire::made_join_token_json(made));
}

void list_join_tokens(const Call& call) {
  call.show([](const auto& state, const auto&, const auto&) {
    return wire::join_tokens_json(state, now_on_the_wall());
  });
}

void revoke_join_token(const Call& call) {
  call.change(cluster::RevokeJoinToken{valid_utf8(call.argument("id").substr(0, token_id_bytes_max))}, 404);
}

void revoke_node(const Call& call) {
  call.change(cluster::RevokeNode{valid_utf8(call.argument("name").substr(0, wire::node_name_bytes_max))},
              404);
}

// The certificate goes out when it is stored that the node has it, and not before.
void give_certificate(const Call& call, cluster::Event event, const Registrar& registrar,
                      const std::string& node, std::string certificate, bool again) {
  wire::JoinReply reply{node, std::move(certificate), registrar.trusted(), again};
  const std::string remote = call.request().remote;
  const bool taken = call.services().core.happen(
      std::move(event),
      [call, reply = std::move(reply), remote](const auto& done) {
        if (!done) {
          log::warning("a server at {} that asks to be node {} is refused: {}", remote, reply.name,
                       done.error().text());
          const bool wrong = done.error().code() == ErrorCode::invalid;
          return call.refuse(done.error(), wrong ? forbidden : 0);
        }
        log::info("node {} at {} has a certificate", reply.name, remote);
        call.answer(wire::encode(reply));
      },
      std::nullopt, remote);
  if (!taken) call.refuse_for_now(failed("the controller is overloaded"));
}

void join_as_node(const Call& call) {
  const Registrar* registrar = call.registrar();
  if (registrar == nullptr) return;
  const auto asked = wire::decode_join(call.body());
  if (!asked) return call.refuse(asked.error());
  const Instant now = now_on_the_wall();
  if (auto same = check_clock(asked->date, now); !same) return call.refuse(same.error());
  const auto key = pki::read_request(asked->request);
  if (!key) return call.refuse(key.error());
  auto made = registrar->sign(asked->name, *key, now);
  if (!made) return call.refuse(made.error());
  made->member.identity = asked->identity;
  give_certificate(call, cluster::Join{hash_of_token(asked->token), std::move(made->member)}, *registrar,
                   asked->name, std::move(made->certificate), false);
}

void renew_certificate(const Call& call) {
  const Registrar* registrar = call.registrar();
  if (registrar == nullptr) return;
  const auto& peer = call.request().peer;
  if (!peer) return call.refuse(invalid("the request shows no certificate"), forbidden);
  const Instant now = now_on_the_wall();
  if (auto good = registrar->check(*peer, now); !good) {
    call.note({.verb = "renew", .object = "node " + peer->name.node, .refused = good.error().text()});
    return call.refuse(good.error(), forbidden);
  }
  const auto asked = wire::decode_renewal(call.body());
  if (!asked) return call.refuse(asked.error());
  if (auto same = check_clock(asked->date, now); !same) return call.refuse(same.error());
  const auto key = pki::read_request(asked->request);
  if (!key) return call.refuse(key.error());
  if (key->id != peer->key_id)
    return call.refuse(invalid("the request is for another key than that of the certificate"), forbidden);
  auto made = registrar->sign(peer->name.node, *key, now);
  if (!made) return call.refuse(made.error());
  registrar->note_stored(made->member, *peer, asked->trusted);
  const bool again = registrar->is_behind(made->member);
  give_certificate(call, cluster::Renew{std::move(made->member)}, *registrar, peer->name.node,
                   std::move(made->certificate), again);
}

}  // namespace

std::span<const Route> join_routes() {
  static const std::array table{
      Route{.method = "POST",
            .path = "/join-tokens",
            .need = Need::operate,
            .request = {"JoinTokenRequest"},
            .answer = {"JoinTokenReply"},
            .summary = "Makes a token with which servers join as nodes; it is said once",
            .handle = make_join_token},
      Route{.method = "GET",
            .path = "/join-tokens",
            .need = Need::operate,
            .answer = {"JoinTokenList"},
            .summary = "The tokens for new nodes, without what opens",
            .handle = list_join_tokens},
      Route{.method = "DELETE",
            .path = "/join-tokens/{id}",
            .need = Need::operate,
            .answer = {"SubmitReply"},
            .summary = "Makes a token worthless; nodes that have joined with it stay",
            .handle = revoke_join_token},
      Route{.method = "POST",
            .path = "/join",
            .need = Need::nothing,
            .rate = RateClass::joins,
            .request = {"JoinRequest"},
            .answer = {"JoinReply"},
            .summary = "A server with such a token in the body gets a certificate as a node",
            .handle = join_as_node},
      Route{.method = "POST",
            .path = "/join/renew",
            .need = Need::nothing,
            .rate = RateClass::open_pages,
            .request = {"RenewRequest"},
            .answer = {"JoinReply"},
            .summary = "A node that shows its certificate gets a new one",
            .handle = renew_certificate},
      Route{.method = "POST",
            .path = "/nodes/{name}/revoke",
            .need = Need::operate,
            .answer = {"SubmitReply"},
            .summary = "Makes a node's certificate worthless, cuts its connection and gives it up at once",
            .handle = revoke_node},
  };
  return table;
}

}  // namespace tutti::controller
