// The keys of an issuer, and what it says of itself, from anywhere: whatever it is, the parsers answer, and a
// key that is accepted can be tried.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "net/oidc/discovery.hpp"
#include "net/oidc/flow.hpp"
#include "net/oidc/jwks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::oidc;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto keys = parse_jwks(text)) {
    TUTTI_CHECK(!keys->keys.empty() && keys->keys.size() <= keys_max);
    for (const Key& key : keys->keys) {
      TUTTI_CHECK(keys->knows(key.id));
      TUTTI_CHECK(!is_signed_by(key, "text", std::string(64, '\1')));
    }
  }
  if (const auto provider = parse_discovery(text, "https://issuer.example"))
    TUTTI_CHECK(parse_url(provider->keys_url).ok() && parse_url(provider->token_url).ok());
  if (const auto grant = read_device_answer(200, text)) TUTTI_CHECK(parse_url(grant->url).ok());
  static_cast<void>(read_token_answer(200, text));
  static_cast<void>(read_token_answer(400, text));
  return 0;
}
