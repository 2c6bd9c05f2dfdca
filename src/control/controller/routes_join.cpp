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

// Of whoever is refused before the store is asked there is a line as well.
void refuse_to_sign(const Call& call, const std::string& verb, const std::string& node, const Error& why,
                    int status = 0) {
  call.note({.verb = verb, .object = node, .what = {}, .who = {}, .refused = why.text()});
  call.refuse(why, status);
}

// What is not understood may have a token in it, which the reader quotes.
void refuse_to_read(const Call& call, const std::string& verb, const Error& why) {
  call.note({.verb = verb, .object = "a node", .what = {}, .who = {}, .refused = "it is not understood"});
  call.refuse(why);
}

// Each is a line of the audit log.
bool is_too_often(const Call& call, Registrar& registrar, const std::string& node) {
  const Duration wait = registrar.take_renewal(node, now_steady());
  if (wait == Duration::zero()) return false;
  call.refuse(failed("node '" + node + "' asks too often for another certificate")
                  .remedy("try again in " + format_duration(std::chrono::ceil<std::chrono::seconds>(wait))),
              429);
  return true;
}

// The certificate goes out when it is stored that the node has it, and not before.
void give_certificate(const Call& call, cluster::Event event, Registrar& registrar, const std::string& node,
                      std::string certificate, bool again) {
  wire::JoinReply reply{node, std::move(certificate), registrar.trusted(), again};
  const std::string remote = call.request().remote;
  const bool renews = std::holds_alternative<cluster::Renew>(event);
  const bool taken = call.services().core.happen(
      std::move(event),
      [call, &registrar, reply = std::move(reply), remote, renews](const auto& done) {
        if (!done) {
          log::warning("a server at {} that asks to be node {} is refused: {}", remote, reply.name,
                       done.error().text());
          const bool wrong = done.error().code() == ErrorCode::invalid;
          if (wrong || !renews) return call.refuse(done.error(), wrong ? forbidden : 0);
          return call.services().hub.post([call, &registrar, why = done.error()] {
            registrar.could_not_store(now_on_the_wall());
            call.refuse(why);
          });
        }
        log::info("node {} at {} has a certificate", reply.name, remote);
        call.answer(wire::encode(reply));
      },
      std::nullopt, remote);
  if (!taken) call.refuse_for_now(failed("the controller is overloaded"));
}

void join_as_node(const Call& call) {
  Registrar* registrar = call.registrar();
  if (registrar == nullptr) return;
  const auto asked = wire::decode_join(call.body());
  if (!asked) return refuse_to_read(call, "join", asked.error());
  const std::string node = "node " + asked->name;
  const Instant now = now_on_the_wall();
  if (auto same = check_clock(asked->date, now); !same)
    return refuse_to_sign(call, "join", node, same.error());
  const auto key = pki::read_request(asked->request);
  if (!key) return refuse_to_sign(call, "join", node, key.error());
  // Whoever has joined already and has not heard so may ask again, with a token that is used up.
  if (registrar->has(asked->name, key->id) && is_too_often(call, *registrar, asked->name)) return;
  auto made = registrar->sign(asked->name, *key, now);
  if (!made) return call.refuse(made.error());
  made->member.identity = asked->identity;
  give_certificate(call, cluster::Join{hash_of_token(asked->token), std::move(made->member)}, *registrar,
                   asked->name, std::move(made->certificate), false);
}

void renew_certificate(const Call& call) {
  Registrar* registrar = call.registrar();
  if (registrar == nullptr) return;
  const auto& peer = call.request().peer;
  if (!peer) return call.refuse(invalid("the request shows no certificate"), forbidden);
  const std::string node = "node " + peer->name.node;
  const Instant now = now_on_the_wall();
  if (auto good = registrar->check(*peer, now); !good)
    return refuse_to_sign(call, "renew", node, good.error(), forbidden);
  if (is_too_often(call, *registrar, peer->name.node)) return;
  const auto asked = wire::decode_renewal(call.body());
  if (!asked) return refuse_to_read(call, "renew", asked.error());
  if (auto same = check_clock(asked->date, now); !same)
    return refuse_to_sign(call, "renew", node, same.error());
  const auto key = pki::read_request(asked->request);
  if (!key) return refuse_to_sign(call, "renew", node, key.error());
  if (key->id != peer->key_id)
    return refuse_to_sign(call, "renew", node,
                          invalid("the request is for another key than that of the certificate"), forbidden);
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
