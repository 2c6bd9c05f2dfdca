// A key that is made on the spot, and tokens that it signs, good ones and bad ones: for tests. Values: any
// thread.
#pragma once

#include <memory>
#include <string>

struct evp_pkey_st;

namespace tutti::oidc {

class SigningKey {
 public:
  static SigningKey rsa(const std::string& id, unsigned int bits = 2048);
  static SigningKey p256(const std::string& id);
  static SigningKey ed25519(const std::string& id);

  const std::string& id() const { return id_; }
  const std::string& algorithm() const { return algorithm_; }

  // Its public part as a JWKS has it; `more` are members besides.
  std::string jwk(const std::string& more = R"(,"use":"sig")") const;
  std::string header(const std::string& more = R"(,"typ":"JWT")") const;

  // Of any text, as its algorithm has it.
  std::string signature(const std::string& text) const;
  std::string sign(const std::string& header, const std::string& claims) const;
  std::string sign(const std::string& claims) const { return sign(header(), claims); }
  // With HS256 and the public key, for whoever takes that for a secret.
  std::string sign_with_public_key(const std::string& claims) const;

 private:
  SigningKey(std::string id, std::string algorithm, evp_pkey_st* key);
  std::string number(const char* name) const;
  std::string coordinate(const char* name) const;

  std::string id_;
  std::string algorithm_;
  std::shared_ptr<evp_pkey_st> key_;
};

// A JWKS of one or two keys.
std::string jwks_of(const std::string& first, const std::string& second = "");

}  // namespace tutti::oidc
