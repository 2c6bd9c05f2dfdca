// Keys, and requests for certificates.
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <array>

#include "net/pki/openssl.hpp"
#include "net/pki/pki.hpp"

namespace tutti::pki {
namespace {

// Beyond that a signature takes long to verify.
constexpr int rsa_bits_max = 8192;
constexpr int rsa_bits_min = 2048;
constexpr int rsa_exponent_bits_max = 64;

bool has_short_exponent(const EVP_PKEY* key) {
  BIGNUM* number = nullptr;
  const bool known = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &number) == 1;
  const Number exponent(number);
  return known && BN_num_bits(number) <= rsa_exponent_bits_max;
}

bool is_sound(EVP_PKEY* key) {
  switch (EVP_PKEY_base_id(key)) {
    case EVP_PKEY_ED25519:
      return true;
    case EVP_PKEY_RSA:
      return EVP_PKEY_bits(key) >= rsa_bits_min && EVP_PKEY_bits(key) <= rsa_bits_max &&
             has_short_exponent(key);
    case EVP_PKEY_EC: {
      std::array<char, 64> group{};
      std::size_t size = 0;
      int spelled_out = 0;  // its curve, in numbers: nobody takes that in a certificate
      if (EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS, &spelled_out) == 1 &&
          spelled_out != 0)
        return false;
      return EVP_PKEY_get_group_name(key, group.data(), group.size(), &size) == 1 &&
             std::string_view(group.data(), size) == SN_X9_62_prime256v1;
    }
    default:
      return false;
  }
}

Error no_request() {
  return invalid("it is no request for a certificate (PEM)").within("certificate request");
}

}  // namespace

Result<std::string> make_key() {
  const Key key(EVP_EC_gen("P-256"));
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!key || !bio ||
      PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return broken("cannot make a key");
  return text_of(bio.get());
}

Result<std::string> make_request(std::string_view text) {
  const Key key = private_key_in(text);
  if (!key) return failed("there is no private key (PEM) in it").within("key");
  const Request request(X509_REQ_new());
  const Bio bio(BIO_new(BIO_s_mem()));
  const EVP_MD* digest = EVP_PKEY_base_id(key.get()) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
  if (!request || !bio || X509_REQ_set_version(request.get(), 0) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), digest) <= 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1)
    return broken("cannot make a certificate request");
  return text_of(bio.get());
}

Result<PublicKey> read_request(std::string_view text) {
  if (text.size() > request_bytes_max) return invalid("it is too long").within("certificate request");
  const Bio bio = read_only(text);
  const Request request(PEM_read_bio_X509_REQ(
      bio.get(), nullptr, [](char*, int, int, void*) { return -1; }, nullptr));
  ERR_clear_error();
  if (!request) return no_request();
  EVP_PKEY* key = X509_REQ_get0_pubkey(request.get());  // the request's own
  ERR_clear_error();
  if (key == nullptr || !is_sound(key)) {
    return invalid("its key is none that is taken")
        .within("certificate request")
        .remedy("take ECDSA on P-256, Ed25519, or RSA of 2048 to 8192 bits with a short exponent");
  }
  const int proven = X509_REQ_verify(request.get(), key);
  ERR_clear_error();
  if (proven != 1)
    return invalid("whoever asks has not signed with the key: its signature is wrong")
        .within("certificate request");
  const Bio out(BIO_new(BIO_s_mem()));
  if (!out || PEM_write_bio_PUBKEY(out.get(), key) != 1) return broken("certificate request");
  auto id = key_id_of(key);
  if (!id) return std::move(id).error();
  return PublicKey{text_of(out.get()), std::move(*id)};
}

}  // namespace tutti::pki
