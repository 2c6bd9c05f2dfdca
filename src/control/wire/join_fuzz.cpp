// What a server sends that joins, a node that renews and a person who logs in, and what they are answered:
// whoever sends it has shown no more than a token or a certificate. What is accepted is bounded, and can be
// written and read again as the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "control/wire/login.hpp"
#include "control/wire/membership.hpp"
#include "control/wire/messages.hpp"

namespace {

using namespace tutti;

void join(std::string_view text) {
  const auto asked = wire::decode_join(text);
  if (!asked) return;
  TUTTI_CHECK(!asked->token.empty() && asked->token.size() <= wire::join_token_bytes_max);
  TUTTI_CHECK(wire::check_node_name(asked->name).ok() && wire::is_cluster_id(asked->identity));
  TUTTI_CHECK(asked->date >= Instant() && asked->trusted.empty());
  const std::string written = wire::encode(*asked);
  const auto again = wire::decode_join(written);
  TUTTI_CHECK(again.ok() && wire::encode(*again) == written);
}

void renew(std::string_view text) {
  const auto asked = wire::decode_renewal(text);
  if (!asked) return;
  TUTTI_CHECK(asked->token.empty() && asked->name.empty() && asked->date >= Instant());
  const std::string written = wire::encode_renewal(*asked);
  const auto again = wire::decode_renewal(written);
  TUTTI_CHECK(again.ok() && wire::encode_renewal(*again) == written);
}

void make_token(std::string_view text) {
  const auto wish = wire::decode_join_token_wish(text);
  if (!wish) return;
  TUTTI_CHECK(wish->uses >= 1 && wish->uses <= cluster::join_token_uses_max);
  TUTTI_CHECK(wish->life >= 1s && wish->life <= cluster::join_token_life_max);
  const std::string written = wire::encode(*wish);
  const auto again = wire::decode_join_token_wish(written);
  TUTTI_CHECK(again.ok() && wire::encode(*again) == written);
}

void answers(std::string_view text) {
  if (const auto reply = wire::decode_join_reply(text)) {
    const auto again = wire::decode_join_reply(wire::encode(*reply));
    TUTTI_CHECK(again.ok() && again->name == reply->name && again->certificate == reply->certificate);
    TUTTI_CHECK(again->authorities == reply->authorities && again->again == reply->again);
  }
  static_cast<void>(wire::decode_rotation(text));
  static_cast<void>(wire::decode_login_settings(text));
  static_cast<void>(wire::decode_logged_in(text));
}

void log_in(std::string_view text) {
  const auto asked = wire::decode_login(text);
  if (!asked) return;
  const auto again = wire::decode_login(wire::login_json(*asked));
  TUTTI_CHECK(again.ok() && again->id_token == asked->id_token && again->nonce == asked->nonce);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  join(text);
  renew(text);
  make_token(text);
  answers(text);
  log_in(text);
  return 0;
}
