#include "net/oidc/fake/signing_key.hpp"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>

#include <utility>

#include "base/check.hpp"
#include "net/oidc/base64url.hpp"
#include "net/oidc/jwks.hpp"

namespace tutti::oidc {
namespace {

constexpr std::size_t coordinate_bytes = 32;
constexpr std::size_t signature_bytes_max = 2048;

unsigned char* data(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* data(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// r and s one behind the other, as JWTs have them.
std::string plain_point(const std::string& der) {
  const unsigned char* at = data(der);
  const std::unique_ptr<ECDSA_SIG, decltype(&ECDSA_SIG_free)> point(
      d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())), ECDSA_SIG_free);
  TUTTI_CHECK(point != nullptr);
  std::string plain(2 * coordinate_bytes, '\0');
  BN_bn2binpad(ECDSA_SIG_get0_r(point.get()), data(plain), coordinate_bytes);
  BN_bn2binpad(ECDSA_SIG_get0_s(point.get()), data(plain) + coordinate_bytes, coordinate_bytes);
  return plain;
}

}  // namespace

SigningKey::SigningKey(std::string id, std::string algorithm, evp_pkey_st* key)
    : id_(std::move(id)), algorithm_(std::move(algorithm)), key_(key, EVP_PKEY_free) {
  TUTTI_CHECK(key != nullptr);
}

SigningKey SigningKey::rsa(const std::string& id, unsigned int bits) {
  return {id, "RS256", EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", static_cast<std::size_t>(bits))};
}
SigningKey SigningKey::p256(const std::string& id) {
  return {id, "ES256", EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256")};
}
SigningKey SigningKey::ed25519(const std::string& id) {
  return {id, "EdDSA", EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")};
}

std::string SigningKey::number(const char* name) const {
  BIGNUM* found = nullptr;
  TUTTI_CHECK(EVP_PKEY_get_bn_param(key_.get(), name, &found) == 1);
  std::string bytes(static_cast<std::size_t>(BN_num_bytes(found)), '\0');
  BN_bn2bin(found, data(bytes));
  BN_free(found);
  return bytes;
}

std::string SigningKey::coordinate(const char* name) const {
  const std::string bytes = number(name);
  return std::string(coordinate_bytes - bytes.size(), '\0') + bytes;
}

std::string SigningKey::jwk(const std::string& more) const {
  std::string text = R"({"kid":")" + id_ + '"' + more;
  const auto add = [&](const char* name, const std::string& bytes) {
    text += std::string(",\"") + name + "\":\"" + to_base64url(bytes) + '"';
  };
  if (algorithm_ == "RS256") {
    text += R"(,"kty":"RSA")";
    add("n", number(OSSL_PKEY_PARAM_RSA_N));
    add("e", number(OSSL_PKEY_PARAM_RSA_E));
  } else if (algorithm_ == "ES256") {
    text += R"(,"kty":"EC","crv":"P-256")";
    add("x", coordinate(OSSL_PKEY_PARAM_EC_PUB_X));
    add("y", coordinate(OSSL_PKEY_PARAM_EC_PUB_Y));
  } else {
    text += R"(,"kty":"OKP","crv":"Ed25519")";
    std::string raw(coordinate_bytes, '\0');
    std::size_t bytes = raw.size();
    TUTTI_CHECK(EVP_PKEY_get_raw_public_key(key_.get(), data(raw), &bytes) == 1);
    add("x", raw);
  }
  return text + '}';
}

std::string SigningKey::header(const std::string& more) const {
  return R"({"alg":")" + algorithm_ + R"(","kid":")" + id_ + '"' + more + '}';
}

std::string SigningKey::signature(const std::string& text) const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const EVP_MD* digest = algorithm_ == "EdDSA" ? nullptr : EVP_sha256();
  TUTTI_CHECK(EVP_DigestSignInit(context.get(), nullptr, digest, nullptr, key_.get()) == 1);
  std::string made(signature_bytes_max, '\0');
  std::size_t bytes = made.size();
  TUTTI_CHECK(EVP_DigestSign(context.get(), data(made), &bytes, data(text), text.size()) == 1);
  made.resize(bytes);
  return algorithm_ == "ES256" ? plain_point(made) : made;
}

std::string SigningKey::sign(const std::string& header, const std::string& claims) const {
  const std::string text = to_base64url(header) + "." + to_base64url(claims);
  return text + "." + to_base64url(signature(text));
}

std::string SigningKey::sign_with_public_key(const std::string& claims) const {
  const std::string text =
      to_base64url(R"({"alg":"HS256","kid":")" + id_ + R"("})") + "." + to_base64url(claims);
  const auto keys = parse_jwks(jwks_of(jwk()));
  TUTTI_CHECK(keys.ok());
  const std::string& secret = keys->keys.front().public_key;
  std::string made(EVP_MAX_MD_SIZE, '\0');
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), data(text), text.size(), data(made),
       &bytes);
  made.resize(bytes);
  return text + "." + to_base64url(made);
}

std::string jwks_of(const std::string& first, const std::string& second) {
  return R"({"keys":[)" + first + (second.empty() ? "" : ",") + second + "]}";
}

}  // namespace tutti::oidc
