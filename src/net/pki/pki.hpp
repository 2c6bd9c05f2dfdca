// The cluster's own certificates: its authority, the requests of nodes, what is signed for them, and who the
// owner of a certificate is. Text is PEM, times are arguments, and what comes from outside is bounded. Pure
// but for the random numbers of new keys and serials. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace tutti::pki {

constexpr std::size_t request_bytes_max = 16 << 10;
constexpr std::size_t certificate_bytes_max = 16 << 10;
constexpr std::size_t certificates_max = 8;  // in one text: a chain, or the authorities that are trusted
constexpr std::size_t certificates_bytes_max = certificates_max * certificate_bytes_max;
constexpr std::size_t name_bytes_max = 253;
constexpr std::size_t cluster_name_bytes_max = 64;
constexpr std::size_t addresses_max = 64;

constexpr Duration authority_life = 10 * 365 * 24h;
constexpr Duration node_life = 24h;
constexpr Duration controller_life = 7 * 24h;
// Clocks differ: a certificate is good from so long before it was signed.
constexpr Duration clock_slack = 5min;

// ---- names

enum class Role { authority, controller, node };

// Who a certificate speaks for, as it stands in it: tutti://CLUSTER, tutti://CLUSTER/controller,
// tutti://CLUSTER/node/NAME.
struct Name {
  std::string cluster;
  Role role = Role::node;
  std::string node = {};  // of a node

  friend bool operator==(const Name&, const Name&) = default;
};

std::string to_uri(const Name& name);
// In the one form that is written; anything else is refused.
Result<Name> parse_uri(std::string_view uri);

// ---- keys, and requests for certificates

// A new private key (ECDSA P-256).
Result<std::string> make_key();
// A request for a certificate of this key, which proves that whoever asks has it. It asks for nothing else.
Result<std::string> make_request(std::string_view key);

// The key of somebody else.
struct PublicKey {
  std::string text;  // PEM
  std::string id;    // SHA-256 of its DER, in hexadecimal

  friend bool operator==(const PublicKey&, const PublicKey&) = default;
};

// Of a request from outside only the key is taken, if it is a sound one (ECDSA P-256, Ed25519, RSA of 2048
// to 8192 bits) and whoever asks has signed with it. What the request wishes for is not looked at.
Result<PublicKey> read_request(std::string_view request);

// ---- certificates

struct Authority {
  std::string key;          // of its owner alone
  std::string certificate;  // of everybody
};

Result<Authority> make_authority(const std::string& cluster, Instant now);
// Of those who share a secret, and nothing else: each makes it for himself, and what one signs with it the
// others trust. The secret is one that nobody can guess.
Result<Authority> authority_of_secret(std::string_view secret, Instant now);
// A key and a certificate for a server at this address, which all who know the secret trust.
Result<Authority> server_of_secret(std::string_view secret, const std::string& address, Instant now);
// One that was read from a file: a key and the certificate of that key, as the authority of a cluster.
Result<Authority> read_authority(std::string_view text);

// What the signer says of a key. A node calls with its certificate, and a controller is called.
struct Subject {
  Name name;
  std::vector<std::string> addresses = {};  // where it serves: names and IP addresses
};
struct Term {
  Instant now;
  Duration life = node_life;
  bool from_authority = false;  // good since the authority is, and not only from now on
};
// No longer than the authority's own.
Result<std::string> sign(const Authority& authority, const PublicKey& key, const Subject& subject,
                         const Term& term);

// Who has a certificate. It does not say whether anybody has signed it who may.
struct Identity {
  Name name;
  std::string key_id;  // as PublicKey has it
  std::string serial;  // in hexadecimal
  Instant signed_at;   // clock_slack after its beginning
  Instant until;

  friend bool operator==(const Identity&, const Identity&) = default;
};
// Exactly one name of ours stands in it.
Result<Identity> read_certificate(std::string_view certificate);
// The same in DER, as TLS hands it over.
Result<Identity> read_certificate_der(std::string_view der);

// Nothing if one of these authorities (PEM) has signed it: whatever its dates.
Result<> check_signer(std::string_view certificate, std::string_view authorities);

// Nothing if it is good by this clock, else what is wrong with it, for whoever holds it.
Result<> check_time(const Identity& identity, Instant now);

// Of each certificate of a text, in its order; what is between them is passed over.
Result<std::vector<std::string>> split_certificates(std::string_view text);
Result<std::string> to_pem(std::string_view der);

// What people compare: "sha256:" and the hash of the certificate's DER.
Result<std::string> fingerprint(std::string_view certificate);
bool is_fingerprint(std::string_view text);

}  // namespace tutti::pki
