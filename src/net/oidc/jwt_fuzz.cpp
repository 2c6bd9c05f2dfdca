// A token from anywhere: the issuer's keys are in the first line, as it publishes them, and the token behind
// it. Whatever it is, the parser answers, and what it accepts was said by that issuer.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.hpp"
#include "net/oidc/base64url.hpp"
#include "net/oidc/jwt.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string_view token = text.substr(std::min(line + 1, text.size()));
  const oidc::Expected expected{.issuer = "https://issuer.example", .client_id = "tutti"};
  const Instant now(std::chrono::seconds(1'800'000'000));
  const auto header = oidc::read_header(token);
  if (const auto bytes = oidc::from_base64url(token)) TUTTI_CHECK(oidc::to_base64url(*bytes) == token);
  const auto keys = oidc::parse_jwks(text.substr(0, line));
  if (!keys) return 0;
  const auto identity = oidc::verify(token, *keys, expected, now);
  if (!identity) return 0;
  TUTTI_CHECK(header.ok() && keys->find(header->key_id, header->algorithm).ok());
  TUTTI_CHECK(identity->issuer == expected.issuer && oidc::is_name(identity->name));
  TUTTI_CHECK(identity->groups.size() <= oidc::groups_max && !identity->subject.empty());
  return 0;
}
