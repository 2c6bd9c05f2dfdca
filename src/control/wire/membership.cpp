#include "control/wire/membership.hpp"

#include <algorithm>

#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/messages.hpp"
#include "control/wire/objects.hpp"

namespace tutti::wire {
namespace {

constexpr std::string_view token_prefix = "join-token/";
constexpr std::string_view member_prefix = "member/";
constexpr std::size_t request_bytes_max = 16 << 10;
constexpr int trusted_max = 16;
constexpr std::int64_t last_second = 9'000'000'000;  // nanoseconds of 64 bits end in 2262

Instant instant_from(std::int64_t seconds) {
  return Instant(std::chrono::seconds(std::clamp<std::int64_t>(seconds, 0, last_second)));
}

std::int64_t seconds_of(Instant at) {
  return std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count();
}

Result<> check_pattern(std::string_view pattern) {
  const bool fine =
      pattern.size() <= cluster::name_pattern_bytes_max &&
      std::all_of(pattern.begin(), pattern.end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 ||
               std::string_view("._-*?").find(static_cast<char>(letter)) != std::string_view::npos;
      });
  if (fine) return {};
  return invalid("name_pattern is none")
      .remedy("use letters, digits, '.', '_', '-', and '*' or '?' for others");
}

Result<> check_token(std::string_view token) {
  const bool fine =
      !token.empty() && token.size() <= join_token_bytes_max &&
      std::all_of(token.begin(), token.end(), [](char letter) { return letter > ' ' && letter <= '~'; });
  if (fine) return {};
  return invalid("the token is none").remedy("`tutti nodes token` makes one");
}

std::string_view state_of(const cluster::JoinToken& token, Instant now) {
  if (now >= token.expires_at) return "expired";
  return token.uses_left > 0 ? "good" : "used up";
}

}  // namespace

std::string join_token_key(const std::string& id) { return std::string(token_prefix) + id; }
std::string member_key(const std::string& name) { return std::string(member_prefix) + name; }

std::string encode(const cluster::JoinToken& token) {
  proto::StoredJoinToken to;
  to.set_id(token.id);
  to.set_hash(token.hash);
  to.set_name_pattern(token.name_pattern);
  to.set_uses_left(token.uses_left);
  to.set_made_at_ns(token.made_at.time_since_epoch().count());
  to.set_expires_at_ns(token.expires_at.time_since_epoch().count());
  return to.SerializeAsString();
}

std::string encode(const cluster::Member& member) {
  proto::StoredMember to;
  to.set_name(member.name);
  to.set_key(member.key);
  to.set_identity(member.identity);
  to.set_serial(member.serial);
  to.set_authority(member.authority);
  to.set_token(member.token);
  to.set_signed_at_ns(member.signed_at.time_since_epoch().count());
  to.set_until_ns(member.until.time_since_epoch().count());
  to.set_revoked(member.revoked);
  to.set_knows_next(member.knows_next);
  to.set_held(member.held);
  return to.SerializeAsString();
}

bool is_of_membership(std::string_view key) {
  return key.starts_with(token_prefix) || key.starts_with(member_prefix);
}

bool decode_membership(cluster::State& state, std::string_view key, std::string_view bytes) {
  const int size = static_cast<int>(bytes.size());
  if (key.starts_with(token_prefix)) {
    proto::StoredJoinToken from;
    if (!from.ParseFromArray(bytes.data(), size) || key.substr(token_prefix.size()) != from.id())
      return false;
    state.join_tokens[from.id()] = {from.id(),
                                    from.hash(),
                                    from.name_pattern(),
                                    from.uses_left(),
                                    Instant(Duration(from.made_at_ns())),
                                    Instant(Duration(from.expires_at_ns()))};
    return true;
  }
  proto::StoredMember from;
  if (!from.ParseFromArray(bytes.data(), size) || key.substr(member_prefix.size()) != from.name() ||
      !check_node_name(from.name()))
    return false;
  state.members[from.name()] = {from.name(),
                                from.key(),
                                from.identity(),
                                from.serial(),
                                from.authority(),
                                from.token(),
                                Instant(Duration(from.signed_at_ns())),
                                Instant(Duration(from.until_ns())),
                                from.revoked(),
                                from.knows_next(),
                                from.held()};
  return true;
}

std::string encode(const JoinTokenWish& wish) {
  proto::JoinTokenRequest to;
  to.set_uses(wish.uses);
  to.set_life_s(std::chrono::duration_cast<std::chrono::seconds>(wish.life).count());
  if (!wish.name_pattern.empty()) to.set_name_pattern(wish.name_pattern);
  return print(to);
}

Result<JoinTokenWish> decode_join_token_wish(std::string_view text) {
  proto::JoinTokenRequest from;
  if (auto parsed = parse(text.empty() ? "{}" : text, from); !parsed) return std::move(parsed).error();
  JoinTokenWish wish;
  if (from.has_uses()) wish.uses = from.uses();
  if (wish.uses < 1 || wish.uses > cluster::join_token_uses_max)
    return invalid("uses is a number from 1 to " + std::to_string(cluster::join_token_uses_max));
  const std::int64_t life_max = cluster::join_token_life_max / 1s;
  if (from.has_life_s()) {
    if (from.life_s() < 1 || from.life_s() > life_max)
      return invalid("life_s is a number of seconds from 1 to " + std::to_string(life_max) + " (" +
                     format_duration(cluster::join_token_life_max) + ")");
    wish.life = std::chrono::seconds(from.life_s());
  }
  wish.name_pattern = from.name_pattern();
  if (auto checked = check_pattern(wish.name_pattern); !checked) return std::move(checked).error();
  return wish;
}

std::string made_join_token_json(const MadeJoinToken& made) {
  proto::JoinTokenReply to;
  to.set_id(made.id);
  to.set_token(made.token);
  to.set_address(made.address);
  to.set_ca(made.authority);
  to.set_expires_at(format_instant(made.expires_at));
  to.set_uses(made.uses);
  return print(to);
}

std::string join_tokens_json(const cluster::State& state, Instant now) {
  proto::JoinTokenList list;
  for (const auto& [id, token] : state.join_tokens) {
    auto& view = *list.add_tokens();
    view.set_id(id);
    view.set_state(std::string(state_of(token, now)));
    view.set_uses_left(token.uses_left);
    view.set_name_pattern(token.name_pattern);
    view.set_made_at(format_instant(token.made_at));
    view.set_expires_at(format_instant(token.expires_at));
  }
  return print(list);
}

std::string authority_json(const AuthorityStanding& standing) {
  proto::AuthorityView view;
  view.set_ca(standing.signer);
  view.set_until(format_instant(standing.until));
  view.set_next(standing.next);
  view.set_old(standing.old);
  add_strings(standing.behind, *view.mutable_behind());
  return print(view);
}

Result<bool> decode_rotation(std::string_view text) {
  proto::RotateRequest from;
  if (auto parsed = parse(text.empty() ? "{}" : text, from); !parsed) return std::move(parsed).error();
  return from.finish();
}

std::string encode(const JoinRequest& request) {
  proto::JoinRequest to;
  to.set_token(request.token);
  to.set_name(request.name);
  to.set_identity(request.identity);
  to.set_request(request.request);
  to.set_date_s(seconds_of(request.date));
  return print(to);
}

Result<JoinRequest> decode_join(std::string_view text) {
  proto::JoinRequest from;
  if (auto parsed = parse(text, from); !parsed) return std::move(parsed).error();
  if (auto checked = check_token(from.token()); !checked) return std::move(checked).error();
  if (auto checked = check_node_name(from.name()); !checked) return std::move(checked).error();
  if (!is_cluster_id(from.identity())) return invalid("the id of a folder is none");
  if (from.request().size() > request_bytes_max) return invalid("the request for a certificate is too long");
  return JoinRequest{.token = from.token(),
                     .name = from.name(),
                     .identity = from.identity(),
                     .request = from.request(),
                     .date = instant_from(from.date_s())};
}

std::string encode_renewal(const JoinRequest& request) {
  proto::RenewRequest to;
  to.set_request(request.request);
  to.set_date_s(seconds_of(request.date));
  add_strings(request.trusted, *to.mutable_trusted());
  return print(to);
}

Result<JoinRequest> decode_renewal(std::string_view text) {
  proto::RenewRequest from;
  if (auto parsed = parse(text, from); !parsed) return std::move(parsed).error();
  if (from.request().size() > request_bytes_max) return invalid("the request for a certificate is too long");
  if (from.trusted_size() > trusted_max) return invalid("it trusts too many authorities");
  return JoinRequest{.request = from.request(),
                     .date = instant_from(from.date_s()),
                     .trusted = {from.trusted().begin(), from.trusted().end()}};
}

std::string encode(const JoinReply& reply) {
  proto::JoinReply to;
  to.set_name(reply.name);
  to.set_certificate(reply.certificate);
  to.set_authorities(reply.authorities);
  if (reply.again) to.set_again(true);
  return print(to);
}

Result<JoinReply> decode_join_reply(std::string_view text) {
  proto::JoinReply from;
  if (!parse(text, from) || from.certificate().empty() || from.authorities().empty())
    return failed("its answer to a node that joins is not understood")
        .remedy("is it a controller of tutti that answers there, and of this version? `tutti version` tells");
  if (auto checked = check_node_name(from.name()); !checked) return std::move(checked).error();
  return JoinReply{from.name(), from.certificate(), from.authorities(), from.again()};
}

}  // namespace tutti::wire
