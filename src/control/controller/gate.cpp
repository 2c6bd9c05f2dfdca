#include "control/controller/gate.hpp"

#include <openssl/crypto.h>

#include "base/bytes.hpp"
#include "net/sync/digest.hpp"

namespace tutti::controller {
namespace {

// Longer ones are none, and are not hashed.
constexpr std::size_t token_bytes_max = 256;

bool same_secret(const std::string& given, const std::string& expected) {
  return !expected.empty() && given.size() == expected.size() &&
         CRYPTO_memcmp(given.data(), expected.data(), given.size()) == 0;
}

}  // namespace

bool Identity::meets(Need need) const {
  if (need == Need::nothing) return true;
  if (need == Need::agent) return agent || (caller && caller->root);
  const auto role = role_of(need);
  return caller && (!role || people::has_somewhere(*caller, *role));
}

Identity Gate::identify(const std::string& secret, Instant now) const {
  if (same_secret(secret, tokens_.admin))
    return {.caller = people::root_caller(), .credential = people::root_credential};
  if (same_secret(secret, tokens_.join)) return {.agent = true};
  const people::TokenId id = secret.size() > token_bytes_max ? "" : people::id_in(secret);
  if (id.empty()) return {};
  auto caller = doors_.open(id, sync::hash_bytes(as_bytes(secret)), now);
  if (!caller) return {};
  return {.caller = *std::move(caller), .credential = {.token = id}};
}

}  // namespace tutti::controller
