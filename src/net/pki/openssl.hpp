// OpenSSL's things with owners. For this module's own files only.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::pki {

template <auto Free>
struct FreeBy {
  template <class T>
  void operator()(T* owned) const {
    Free(owned);
  }
};
using Bio = std::unique_ptr<BIO, FreeBy<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, FreeBy<EVP_PKEY_CTX_free>>;
using Certificate = std::unique_ptr<X509, FreeBy<X509_free>>;
using Request = std::unique_ptr<X509_REQ, FreeBy<X509_REQ_free>>;
using Number = std::unique_ptr<BIGNUM, FreeBy<BN_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, FreeBy<GENERAL_NAMES_free>>;

// What OpenSSL says of the last failure of this thread, and forgets.
std::string last_words();
Error broken(std::string_view what);

Bio read_only(std::string_view text);
std::string text_of(BIO* bio);

// Null if there is none. Nobody is ever asked for a password.
Key private_key_in(std::string_view text);
Key public_key_in(std::string_view text);
Certificate certificate_in(std::string_view text);

std::string der_of(X509* certificate);
Result<std::string> key_id_of(EVP_PKEY* key);
Result<std::string> sha256(std::string_view bytes);

}  // namespace tutti::pki
