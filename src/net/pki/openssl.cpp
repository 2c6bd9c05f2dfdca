#include "net/pki/openssl.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <array>

#include "base/bytes.hpp"

namespace tutti::pki {
namespace {

// An encrypted key would ask at the terminal.
int no_password(char*, int, int, void*) { return -1; }

}  // namespace

std::string last_words() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (code == 0) return "OpenSSL does not say why";
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

Error broken(std::string_view what) { return failed(last_words()).within(what); }

Bio read_only(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

Key private_key_in(std::string_view text) {
  const Bio bio = read_only(text);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  return key;
}

Key public_key_in(std::string_view text) {
  const Bio bio = read_only(text);
  Key key(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  return key;
}

Certificate certificate_in(std::string_view text) {
  const Bio bio = read_only(text);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  return certificate;
}

std::string der_of(X509* certificate) {
  unsigned char* bytes = nullptr;
  const int size = i2d_X509(certificate, &bytes);
  if (size <= 0) return "";
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return der;
}

Result<std::string> key_id_of(EVP_PKEY* key) {
  unsigned char* bytes = nullptr;
  const int size = i2d_PUBKEY(key, &bytes);
  if (size <= 0) return broken("public key");
  const std::string der(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return sha256(der);
}

Result<std::string> sha256(std::string_view bytes) {
  std::array<std::byte, 32> digest{};
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
                 EVP_sha256(), nullptr) != 1)
    return broken("SHA-256");
  return to_hex(digest);
}

}  // namespace tutti::pki
