// The word of an issuer about who somebody is: an ID token of OpenID Connect, as a signed JWT. It is believed
// if the issuer's key has signed it, for us, lately; errors say what is wrong with it, and nothing of what
// stands in it. Pure functions; time is an argument.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/oidc/jwks.hpp"

namespace tutti::oidc {

constexpr std::size_t token_bytes_max = 16 << 10;
constexpr Duration clock_skew_max = 60s;   // between the issuer's clock and ours
constexpr Duration token_age_max = 10min;  // who logs in has just been given it
constexpr std::size_t subject_bytes_max = 255;
constexpr std::size_t name_bytes_max = 64;

// What a token has to say, and where.
struct Expected {
  std::string issuer;
  std::string client_id;
  std::string nonce = {};       // "": none was sent
  std::string name_claim = {};  // "": preferred_username, and sub where there is none
};

struct Identity {
  std::string issuer;
  std::string subject;  // the issuer's own word for whom it means: never given to another one
  std::string name;     // what we call him
  Instant expires_at{};
};

struct Header {
  Algorithm algorithm = Algorithm::rs256;
  std::string key_id;  // "": it names none
};

// Which key is needed; nothing of it is to be believed yet.
Result<Header> read_header(std::string_view token);

Result<Identity> verify(std::string_view token, const KeySet& keys, const Expected& expected, Instant now);

// What can be the name of an account: small letters, digits, and inside also "._-@"; not digits alone, which
// programs take for a number of a user. An issuer may tell Ada from ada, and then they are two.
bool is_name(std::string_view text);

}  // namespace tutti::oidc
