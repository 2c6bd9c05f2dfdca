#include "net/oidc/jwks.hpp"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>

#include "base/json/parse.hpp"
#include "net/oidc/base64url.hpp"
#include "net/oidc/members.hpp"

namespace tutti::oidc {
namespace {

constexpr std::size_t jwks_values_max = 4096;
constexpr std::size_t coordinate_bytes = 32;  // of P-256 and of Ed25519
constexpr std::size_t point_signature_bytes = 64;
constexpr int exponent_bits_max = 32;

template <auto free>
struct Free {
  template <class T>
  void operator()(T* what) const {
    free(what);
  }
};
using PublicKey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Number = std::unique_ptr<BIGNUM, Free<BN_free>>;
using Builder = std::unique_ptr<OSSL_PARAM_BLD, Free<OSSL_PARAM_BLD_free>>;
using Parameters = std::unique_ptr<OSSL_PARAM, Free<OSSL_PARAM_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Free<EVP_PKEY_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>>;
using PointSignature = std::unique_ptr<ECDSA_SIG, Free<ECDSA_SIG_free>>;

const unsigned char* raw(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Number number_of(std::string_view bytes) {
  return Number(BN_bin2bn(raw(bytes), static_cast<int>(bytes.size()), nullptr));
}

// A member of bytes; nothing if it is not there or is none.
std::optional<std::string> bytes_of(const json::Value& key, std::string_view name) {
  return from_base64url(text_of(key, name));
}

PublicKey make_key(const char* kind, const Builder& builder) {
  const Parameters parameters(OSSL_PARAM_BLD_to_param(builder.get()));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr));
  EVP_PKEY* made = nullptr;
  if (!parameters || !context || EVP_PKEY_fromdata_init(context.get()) != 1) return nullptr;
  if (EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1) return nullptr;
  return PublicKey(made);
}

Result<PublicKey> rsa_key(const json::Value& key) {
  const auto modulus = bytes_of(key, "n");
  const auto exponent = bytes_of(key, "e");
  if (!modulus || !exponent || modulus->size() > rsa_bits_max / 8)
    return failed("its n or e is no number that is taken");
  const Number n = number_of(*modulus);
  const Number e = number_of(*exponent);
  if (!n || !e) return failed("its n or e is no number");
  if (BN_num_bits(n.get()) < rsa_bits_min)
    return failed("it has " + std::to_string(BN_num_bits(n.get())) + " bits, and " +
                  std::to_string(rsa_bits_min) + " are the least that is safe");
  const bool odd = BN_is_odd(n.get()) != 0 && BN_is_odd(e.get()) != 0;
  if (!odd || BN_is_one(e.get()) != 0 || BN_num_bits(e.get()) > exponent_bits_max)
    return failed("its n and e are no key of RSA");
  const Builder builder(OSSL_PARAM_BLD_new());
  if (!builder || OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1)
    return failed("there is not enough memory");
  return make_key("RSA", builder);
}

Result<PublicKey> p256_key(const json::Value& key) {
  if (text_of(key, "crv") != "P-256") return failed("its curve is not P-256");
  const auto x = bytes_of(key, "x");
  const auto y = bytes_of(key, "y");
  if (!x || !y || x->size() != coordinate_bytes || y->size() != coordinate_bytes)
    return failed("its x and y are not of 32 bytes each");
  const std::string point = '\4' + *x + *y;  // uncompressed
  const Builder builder(OSSL_PARAM_BLD_new());
  if (!builder ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size()) !=
          1)
    return failed("there is not enough memory");
  PublicKey made = make_key("EC", builder);
  const KeyContext check(made ? EVP_PKEY_CTX_new_from_pkey(nullptr, made.get(), nullptr) : nullptr);
  if (!check || EVP_PKEY_public_check(check.get()) != 1) return failed("its point does not lie on the curve");
  return made;
}

Result<PublicKey> ed25519_key(const json::Value& key) {
  if (text_of(key, "crv") != "Ed25519") return failed("its curve is not Ed25519");
  const auto x = bytes_of(key, "x");
  if (!x || x->size() != coordinate_bytes) return failed("its x is not of 32 bytes");
  return PublicKey(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(*x), x->size()));
}

// Whether the issuer wants it used for this.
Result<> check_use(const json::Value& key, Algorithm algorithm) {
  if (key.find("d") != nullptr || key.find("k") != nullptr)
    return failed("its secret part was published with it");
  if (key.find("use") != nullptr && text_of(key, "use") != "sig")
    return failed("it is not for signatures (use)");
  if (key.find("alg") != nullptr && text_of(key, "alg") != name_of(algorithm))
    return failed("it is for another algorithm (alg)");
  const json::Value* operations = key.find("key_ops");
  if (operations == nullptr) return {};
  const json::Array* list = operations->list();
  const auto verifies = [](const json::Value& value) {
    return value.text() != nullptr && *value.text() == "verify";
  };
  if (list == nullptr || std::none_of(list->begin(), list->end(), verifies))
    return failed("it is not to verify anything (key_ops)");
  return {};
}

Result<Key> read_key(const json::Value& value) {
  Key key;
  const std::string kind = text_of(value, "kty");
  Result<PublicKey> made = failed("it is of a kind that is not taken (kty)");
  if (kind == "RSA") {
    key.algorithm = Algorithm::rs256;
  } else if (kind == "EC") {
    key.algorithm = Algorithm::es256;
  } else if (kind == "OKP") {
    key.algorithm = Algorithm::eddsa;
  } else {
    return std::move(made).error();
  }
  if (auto fit = check_use(value, key.algorithm); !fit) return std::move(fit).error();
  made = kind == "RSA" ? rsa_key(value) : kind == "EC" ? p256_key(value) : ed25519_key(value);
  if (!made) return std::move(made).error();
  unsigned char* der = nullptr;
  const int bytes = *made ? i2d_PUBKEY(made->get(), &der) : 0;
  if (bytes <= 0) return failed("it is no key");
  key.public_key.assign(reinterpret_cast<const char*>(der), static_cast<std::size_t>(bytes));
  OPENSSL_free(der);
  return key;
}

// OpenSSL has signatures of ECDSA as DER, JWTs as r and s one behind the other. "" if it is none.
std::string der_signature(std::string_view signature) {
  if (signature.size() != point_signature_bytes) return "";
  Number r = number_of(signature.substr(0, coordinate_bytes));
  Number s = number_of(signature.substr(coordinate_bytes));
  const PointSignature point(ECDSA_SIG_new());
  if (!r || !s || !point || ECDSA_SIG_set0(point.get(), r.get(), s.get()) != 1) return "";
  static_cast<void>(r.release());
  static_cast<void>(s.release());
  unsigned char* der = nullptr;
  const int bytes = i2d_ECDSA_SIG(point.get(), &der);
  if (bytes <= 0) return "";
  std::string text(reinterpret_cast<const char*>(der), static_cast<std::size_t>(bytes));
  OPENSSL_free(der);
  return text;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::rs256:
      return "RS256";
    case Algorithm::es256:
      return "ES256";
    case Algorithm::eddsa:
      return "EdDSA";
  }
  return "";
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  for (const Algorithm algorithm : {Algorithm::rs256, Algorithm::es256, Algorithm::eddsa}) {
    if (name == name_of(algorithm)) return algorithm;
  }
  return std::nullopt;
}

Result<Key> KeySet::find(std::string_view id, Algorithm algorithm) const {
  const auto fits = [&](const Key& key) {
    return key.algorithm == algorithm && (id.empty() || key.id == id);
  };
  const auto found = std::find_if(keys.begin(), keys.end(), fits);
  if (found != keys.end()) {
    if (id.empty() && std::count_if(keys.begin(), keys.end(), fits) > 1)
      return invalid("it does not say which of the issuer's keys has signed it (kid)");
    return *found;
  }
  const auto why =
      std::find_if(refused.begin(), refused.end(), [&](const Refused& key) { return key.id == id; });
  if (!id.empty() && why != refused.end())
    return invalid("the issuer's key that it names cannot be used: " + why->why);
  if (std::any_of(keys.begin(), keys.end(), [&](const Key& key) { return !id.empty() && key.id == id; }))
    return invalid("the issuer's key that it names is for another algorithm than " +
                   std::string(name_of(algorithm)));
  return invalid("the issuer has no key with which it may have been signed")
      .remedy("if the issuer has new keys, try again in a minute");
}

bool KeySet::knows(std::string_view id) const {
  const auto is_it = [&](const auto& key) { return id.empty() || key.id == id; };
  return std::any_of(keys.begin(), keys.end(), is_it) || std::any_of(refused.begin(), refused.end(), is_it);
}

Result<KeySet> parse_jwks(std::string_view text) {
  if (text.size() > jwks_bytes_max) return failed("it is too long");
  if (auto fine = json::scan(text, jwks_values_max); !fine)
    return std::move(fine).error().as(ErrorCode::failed);
  const auto value = json::parse(text);
  if (!value) return Error(value.error()).as(ErrorCode::failed);
  const json::Value* found = value->find("keys");
  const json::Array* list = found == nullptr ? nullptr : found->list();
  if (list == nullptr) return failed("it has no list of keys");
  if (list->size() > keys_max) return failed("it has more than " + std::to_string(keys_max) + " keys");
  KeySet keys;
  for (const json::Value& each : *list) {
    if (each.object() == nullptr) return failed("one of its keys is none");
    const std::string id = text_of(each, "kid");
    if (id.size() > key_id_bytes_max) return failed("the name of one of its keys is too long");
    auto key = read_key(each);
    if (key) {
      key->id = id;
      keys.keys.push_back(std::move(*key));
    } else {
      keys.refused.push_back({id, key.error().message()});
    }
  }
  if (!keys.keys.empty()) return keys;
  if (keys.refused.empty()) return failed("it has no keys");
  return failed("none of its keys can be used, the first because " + keys.refused.front().why);
}

bool is_signed_by(const Key& key, std::string_view text, std::string_view signature) {
  const unsigned char* der = raw(key.public_key);
  const PublicKey with(d2i_PUBKEY(nullptr, &der, static_cast<long>(key.public_key.size())));
  const DigestContext context(EVP_MD_CTX_new());
  if (!with || !context) return false;
  const EVP_MD* digest = key.algorithm == Algorithm::eddsa ? nullptr : EVP_sha256();
  if (EVP_DigestVerifyInit(context.get(), nullptr, digest, nullptr, with.get()) != 1) return false;
  const std::string converted =
      key.algorithm == Algorithm::es256 ? der_signature(signature) : std::string(signature);
  if (converted.empty()) return false;
  return EVP_DigestVerify(context.get(), raw(converted), converted.size(), raw(text), text.size()) == 1;
}

bool KeyRing::wants_fetch(std::string_view id, Instant now) const {
  const KeySet* known = keys(now);
  const Duration pause = known == nullptr ? first_keys_asked_every : keys_asked_every;
  if (asked_at_ && now - *asked_at_ < pause) return false;
  return known == nullptr || now - taken_at_ >= keys_age_max || !known->knows(id);
}

void KeyRing::took(KeySet keys, Instant now) {
  keys_ = std::move(keys);
  taken_at_ = now;
}

const KeySet* KeyRing::keys(Instant now) const {
  return keys_ && now - taken_at_ < keys_kept_max ? &*keys_ : nullptr;
}

}  // namespace tutti::oidc
