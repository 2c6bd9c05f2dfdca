// A token from anywhere: the issuer's keys are in the first line, as it publishes them, and the token behind
// it. Whatever it is, the parser answers, and what it accepts was said by that issuer. What is behind the
// line is also signed as the claims of a token, because nobody guesses a signature and what is in it would
// never be looked at.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "net/oidc/base64url.hpp"
#include "net/oidc/fake/signing_key.hpp"
#include "net/oidc/jwt.hpp"

namespace {

using namespace tutti;

void look_at(std::string_view token, const oidc::KeySet& keys) {
  const oidc::Expected expected{.issuer = "https://issuer.example", .client_id = "tutti"};
  const Instant now(std::chrono::seconds(1'800'000'000));
  const auto header = oidc::read_header(token);
  const auto identity = oidc::verify(token, keys, expected, now);
  if (!identity) return;
  TUTTI_CHECK(header.ok() && keys.find(header->key_id, header->algorithm).ok());
  TUTTI_CHECK(identity->issuer == expected.issuer && oidc::is_name(identity->name));
  TUTTI_CHECK(!identity->subject.empty() && identity->expires_at >= now - oidc::clock_skew_max);
}

// The claims of a token, decoded; what is none is taken as it is.
std::string claims_in(std::string_view token) {
  const std::size_t first = token.find('.');
  const std::size_t second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos) return std::string(token);
  return oidc::from_base64url(token.substr(first + 1, second - first - 1)).value_or(std::string(token));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string_view token = text.substr(std::min(line + 1, text.size()));
  if (const auto bytes = oidc::from_base64url(token)) TUTTI_CHECK(oidc::to_base64url(*bytes) == token);
  if (const auto keys = oidc::parse_jwks(text.substr(0, line))) look_at(token, *keys);
  static const oidc::SigningKey own = oidc::SigningKey::ed25519("own");
  static const oidc::KeySet own_keys = *oidc::parse_jwks(oidc::jwks_of(own.jwk()));
  look_at(own.sign(claims_in(token)), own_keys);
  return 0;
}
