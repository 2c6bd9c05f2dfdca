// Certificates that are read: whose they are, and until when.
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <ctime>

#include "base/bytes.hpp"
#include "net/pki/openssl.hpp"
#include "net/pki/pki.hpp"

namespace tutti::pki {
namespace {

constexpr std::string_view fingerprint_prefix = "sha256:";
constexpr std::size_t fingerprint_digits = 64;
constexpr std::string_view begin_line = "-----BEGIN CERTIFICATE-----";
constexpr std::string_view end_line = "-----END CERTIFICATE-----";

Error no_certificate() { return invalid("it is no certificate (PEM)").within("certificate"); }

Result<Instant> instant_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    ERR_clear_error();
    return invalid("its dates are none");
  }
  // Nanoseconds of 64 bits end in 2262.
  constexpr std::time_t last = 9'000'000'000;
  return Instant(std::chrono::seconds(std::clamp<std::time_t>(::timegm(&parts), 0, last)));
}

Result<Name> name_of(X509* certificate) {
  int found = 0;
  const Names names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, &found, nullptr)));
  ERR_clear_error();
  if (!names) return invalid("no cluster has given it a name");
  std::string uri;
  int uris = 0;
  for (int at = 0; at < sk_GENERAL_NAME_num(names.get()); ++at) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), at);
    if (name->type != GEN_URI) continue;
    ++uris;
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
               static_cast<std::size_t>(ASN1_STRING_length(text)));
  }
  if (uris != 1) return invalid("it has " + std::to_string(uris) + " names where it has to have one");
  return parse_uri(uri);
}

std::string serial_of(X509* certificate) {
  const Number number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  ERR_clear_error();
  if (!number) return "";
  std::string bytes(static_cast<std::size_t>(BN_num_bytes(number.get())), '\0');
  BN_bn2bin(number.get(), reinterpret_cast<unsigned char*>(bytes.data()));
  return to_hex(as_bytes(bytes));
}

Result<Identity> identity_of(X509* certificate) {
  auto name = name_of(certificate);
  if (!name) return std::move(name).error().within("certificate");
  EVP_PKEY* key = X509_get0_pubkey(certificate);
  ERR_clear_error();
  if (key == nullptr) return invalid("its key is none that is known").within("certificate");
  auto id = key_id_of(key);
  if (!id) return std::move(id).error();
  auto from = instant_of(X509_get0_notBefore(certificate));
  auto until = instant_of(X509_get0_notAfter(certificate));
  if (!from) return std::move(from).error().within("certificate");
  if (!until) return std::move(until).error().within("certificate");
  return Identity{std::move(*name), std::move(*id), serial_of(certificate), *from + clock_slack, *until};
}

}  // namespace

Result<Identity> read_certificate(std::string_view text) {
  if (text.size() > certificates_bytes_max) return invalid("it is too long").within("certificate");
  const Certificate certificate = certificate_in(text);
  if (!certificate) return no_certificate();
  return identity_of(certificate.get());
}

Result<Identity> read_certificate_der(std::string_view der) {
  if (der.size() > certificate_bytes_max) return invalid("it is too long").within("certificate");
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  const Certificate certificate(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
  ERR_clear_error();
  if (!certificate) return invalid("it is no certificate").within("certificate");
  return identity_of(certificate.get());
}

Result<> check_signer(std::string_view text, std::string_view authorities) {
  const Certificate certificate = certificate_in(text);
  if (!certificate) return no_certificate();
  auto all = split_certificates(authorities);
  if (!all) return std::move(all).error();
  for (const std::string& one : *all) {
    const Certificate authority = certificate_in(one);
    const bool has_signed = X509_check_ca(authority.get()) == 1 &&
                            X509_check_issued(authority.get(), certificate.get()) == X509_V_OK &&
                            X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) == 1;
    ERR_clear_error();
    if (has_signed) return {};
  }
  return invalid("none of the authorities has signed it").within("certificate");
}

Result<> check_time(const Identity& identity, Instant now) {
  const Instant from = identity.signed_at - clock_slack;
  if (now < from)
    return failed("the certificate is good from " + format_instant(from) + " on, and here it is " +
                  format_instant(now))
        .remedy("set the clock of this machine, or of the one that has signed it");
  if (now >= identity.until)
    return failed("the certificate has expired at " + format_instant(identity.until) + ", and here it is " +
                  format_instant(now))
        .remedy(
            "`tutti agent join` with a new token (`tutti nodes token`) gets another one; if the date is "
            "wrong, set the clock");
  return {};
}

Result<std::vector<std::string>> split_certificates(std::string_view text) {
  if (text.size() > certificates_bytes_max) return invalid("it is too long").within("certificates");
  std::vector<std::string> all;
  for (;;) {
    const auto begin = text.find(begin_line);
    if (begin == std::string_view::npos) return all;
    const auto end = text.find(end_line, begin);
    if (end == std::string_view::npos) return no_certificate();
    if (all.size() == certificates_max) return invalid("there are too many of them").within("certificates");
    const std::string_view one = text.substr(begin, end + end_line.size() - begin);
    if (!certificate_in(one)) return no_certificate();
    all.push_back(std::string(one) + "\n");
    text.remove_prefix(end + end_line.size());
  }
}

Result<std::string> to_pem(std::string_view der) {
  if (der.size() > certificate_bytes_max) return invalid("it is too long").within("certificate");
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  const Certificate certificate(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
  const Bio bio(BIO_new(BIO_s_mem()));
  const bool written = certificate && bio && PEM_write_bio_X509(bio.get(), certificate.get()) == 1;
  ERR_clear_error();
  if (!written) return invalid("it is no certificate").within("certificate");
  return text_of(bio.get());
}

Result<std::string> fingerprint(std::string_view text) {
  const Certificate certificate = certificate_in(text);
  if (!certificate) return no_certificate();
  auto hash = sha256(der_of(certificate.get()));
  if (!hash) return std::move(hash).error();
  return std::string(fingerprint_prefix) + *hash;
}

bool is_fingerprint(std::string_view text) {
  if (!text.starts_with(fingerprint_prefix)) return false;
  text.remove_prefix(fingerprint_prefix.size());
  return text.size() == fingerprint_digits && std::all_of(text.begin(), text.end(), [](char letter) {
           return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
         });
}

}  // namespace tutti::pki
