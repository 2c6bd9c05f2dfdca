// The public keys of an issuer (RFC 7517), and when to ask for them again. Only keys that can verify RS256,
// ES256 or EdDSA (Ed25519) are kept, checked once; of the others it is known why not. Values; time is an
// argument.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::oidc {

constexpr std::size_t jwks_bytes_max = 256 << 10;
constexpr std::size_t keys_max = 64;
constexpr std::size_t key_id_bytes_max = 256;
constexpr int rsa_bits_min = 2048;
constexpr int rsa_bits_max = 8192;

// A list of what is taken, and not of what is not: neither "none" nor HMAC can be in it by mistake.
enum class Algorithm { rs256, es256, eddsa };
std::string_view name_of(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);

struct Key {
  std::string id;  // "" where it has none
  Algorithm algorithm = Algorithm::rs256;
  std::string public_key;  // SubjectPublicKeyInfo in DER
};

struct KeySet {
  struct Refused {
    std::string id;
    std::string why;
  };
  std::vector<Key> keys;
  std::vector<Refused> refused;

  // The key that a token names; one that names none means the only one there is for its algorithm.
  Result<Key> find(std::string_view id, Algorithm algorithm) const;
  // Whether this key, of any kind, stands in it.
  bool knows(std::string_view id) const;
};

Result<KeySet> parse_jwks(std::string_view text);

// Whether the key has made this signature of the text.
bool is_signed_by(const Key& key, std::string_view text, std::string_view signature);

constexpr Duration keys_age_max = 1h;            // then they are asked for again
constexpr Duration keys_kept_max = 24h;          // so long they are believed while the issuer does not answer
constexpr Duration keys_asked_every = 60s;       // whatever strangers send
constexpr Duration first_keys_asked_every = 5s;  // as long as there are none

// What is known of an issuer's keys. It asks nobody: it says when to. One thread at a time.
class KeyRing {
 public:
  // Whether the issuer is to be asked before a token is judged that names this key.
  bool wants_fetch(std::string_view id, Instant now) const;
  // It is asked now, whatever comes of it.
  void asked(Instant now) { asked_at_ = now; }
  void took(KeySet keys, Instant now);
  // Null: there are none, or none that can be believed still.
  const KeySet* keys(Instant now) const;

 private:
  std::optional<KeySet> keys_;
  Instant taken_at_{};
  std::optional<Instant> asked_at_;
};

}  // namespace tutti::oidc
