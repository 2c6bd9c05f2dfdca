// The authority of a cluster, and what it signs.
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>

#include "net/pki/openssl.hpp"
#include "net/pki/pki.hpp"

namespace tutti::pki {
namespace {

constexpr int serial_bits = 128;
constexpr std::size_t authority_bytes_max = 64 << 10;
constexpr std::size_t common_name_bytes_max = 64;  // of X.509
constexpr const char* secret_cluster = "secret";

std::time_t seconds_of(Instant at) {
  return std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count();
}

bool set_serial(X509* certificate) {
  const Number number(BN_new());
  return number && BN_rand(number.get(), serial_bits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_times(X509* certificate, Instant from, Instant until) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), seconds_of(from)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), seconds_of(until)) != nullptr;
}

bool add_common_name(X509_NAME* name, const std::string& text) {
  const std::string fitting = text.substr(0, common_name_bytes_max);
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(fitting.data()),
                                    static_cast<int>(fitting.size()), -1, 0) == 1;
}

// The words are ours alone: OpenSSL reads a small language in them.
bool add_extension(X509* certificate, X509* issuer, int kind, const char* words) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, words);
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool add_name(GENERAL_NAMES* names, int type, std::string_view bytes) {
  GENERAL_NAME* name = GENERAL_NAME_new();
  ASN1_STRING* text = ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
  if (name == nullptr || text == nullptr ||
      ASN1_STRING_set(text, bytes.data(), static_cast<int>(bytes.size())) != 1) {
    GENERAL_NAME_free(name);
    ASN1_STRING_free(text);
    return false;
  }
  GENERAL_NAME_set0_value(name, type, text);
  if (sk_GENERAL_NAME_push(names, name) > 0) return true;
  GENERAL_NAME_free(name);
  return false;
}

bool add_address(GENERAL_NAMES* names, const std::string& address) {
  std::array<char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET, address.c_str(), bytes.data()) == 1)
    return add_name(names, GEN_IPADD, {bytes.data(), sizeof(in_addr)});
  if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1)
    return add_name(names, GEN_IPADD, {bytes.data(), sizeof(in6_addr)});
  return add_name(names, GEN_DNS, address);
}

bool add_names(X509* certificate, const Subject& subject) {
  const Names names(GENERAL_NAMES_new());
  if (!names || !add_name(names.get(), GEN_URI, to_uri(subject.name))) return false;
  for (const std::string& address : subject.addresses) {
    if (!add_address(names.get(), address)) return false;
  }
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) == 1;
}

bool is_dns_name(const std::string& text) {
  return !text.empty() && text.size() <= name_bytes_max &&
         std::all_of(text.begin(), text.end(), [](char letter) {
           return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                  (letter >= '0' && letter <= '9') || letter == '.' || letter == '-' || letter == '_';
         });
}

bool is_address(const std::string& text) {
  std::array<char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

Result<std::string> written(X509* certificate, EVP_PKEY* by) {
  const EVP_MD* digest = EVP_PKEY_base_id(by) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || X509_sign(certificate, by, digest) <= 0 || PEM_write_bio_X509(bio.get(), certificate) != 1)
    return broken("cannot sign a certificate");
  return text_of(bio.get());
}

Result<std::string> text_of_key(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (key == nullptr || !bio ||
      PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return broken("key");
  return text_of(bio.get());
}

// The same key of the same secret, and of no other use of it.
Result<std::string> key_of_secret(std::string_view secret) {
  const std::string seed = "tutti: the authority of a shared secret\n" + std::string(secret);
  std::array<unsigned char, 32> bytes{};
  if (EVP_Digest(seed.data(), seed.size(), bytes.data(), nullptr, EVP_sha256(), nullptr) != 1)
    return broken("SHA-256");
  const Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes.data(), bytes.size()));
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return text_of_key(key.get());
}

Result<Authority> authority_with(Result<std::string> text, const std::string& cluster, Instant now) {
  const Name name{.cluster = cluster, .role = Role::authority};
  if (auto sound = parse_uri(to_uri(name)); !sound) return std::move(sound).error();
  if (!text) return std::move(text).error();
  const Key key = private_key_in(*text);
  const Certificate certificate(X509_new());
  auto id = key ? key_id_of(key.get()) : Result<std::string>(broken("authority"));
  if (!id) return std::move(id).error();
  // While one follows another both are trusted: they are told apart by name, too.
  const std::string common_name = "tutti " + cluster + " " + id->substr(0, 8);
  X509* made = certificate.get();
  if (made == nullptr || X509_set_version(made, X509_VERSION_3) != 1 || !set_serial(made) ||
      !set_times(made, now - clock_slack, now + authority_life) ||
      !add_common_name(X509_get_subject_name(made), common_name) ||
      X509_set_issuer_name(made, X509_get_subject_name(made)) != 1 || X509_set_pubkey(made, key.get()) != 1 ||
      !add_extension(made, made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add_extension(made, made, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(made, made, NID_subject_key_identifier, "hash") || !add_names(made, {.name = name}))
    return broken("cannot make an authority");
  auto signed_text = written(made, key.get());
  if (!signed_text) return std::move(signed_text).error();
  return Authority{std::move(*text), std::move(*signed_text)};
}

}  // namespace

Result<Authority> make_authority(const std::string& cluster, Instant now) {
  return authority_with(make_key(), cluster, now);
}

Result<Authority> authority_of_secret(std::string_view secret, Instant now) {
  return authority_with(key_of_secret(secret), secret_cluster, now);
}

Result<Authority> server_of_secret(std::string_view secret, const std::string& address, Instant now) {
  auto authority = authority_of_secret(secret, now);
  if (!authority) return authority;
  auto key = make_key();
  if (!key) return std::move(key).error();
  auto request = make_request(*key);
  if (!request) return std::move(request).error();
  auto holder = read_request(*request);
  if (!holder) return std::move(holder).error();
  auto certificate =
      sign(*authority, *holder,
           {.name = {.cluster = secret_cluster, .role = Role::controller}, .addresses = {address}},
           {.now = now, .life = authority_life, .from_authority = true});
  if (!certificate) return std::move(certificate).error();
  return Authority{std::move(*key), std::move(*certificate)};
}

Result<Authority> read_authority(std::string_view text) {
  if (text.size() > authority_bytes_max) return invalid("it is too long");
  const Key key = private_key_in(text);
  const Certificate certificate = certificate_in(text);
  if (!key || !certificate) return invalid("it does not hold a key and a certificate (PEM)");
  const KeyContext context(EVP_PKEY_CTX_new(key.get(), nullptr));
  const bool is_pair = X509_check_private_key(certificate.get(), key.get()) == 1 && context &&
                       EVP_PKEY_pairwise_check(context.get()) == 1;
  const bool is_whole = X509_verify(certificate.get(), key.get()) == 1;
  const bool is_authority = X509_check_ca(certificate.get()) == 1;
  ERR_clear_error();
  if (!is_pair) return invalid("its key and its certificate do not belong together");
  if (!is_whole) return invalid("its certificate is damaged: it is not as its key has signed it");
  const Bio key_text(BIO_new(BIO_s_mem()));
  auto pem = to_pem(der_of(certificate.get()));
  auto identity = read_certificate(text);
  if (!identity) return std::move(identity).error();
  if (!is_authority || identity->name.role != Role::authority)
    return invalid("its certificate is none of an authority");
  if (!pem) return std::move(pem).error();
  if (!key_text ||
      PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return broken("authority");
  return Authority{text_of(key_text.get()), std::move(*pem)};
}

Result<std::string> sign(const Authority& authority, const PublicKey& key, const Subject& subject,
                         const Term& term) {
  if (auto sound = parse_uri(to_uri(subject.name)); !sound || subject.name.role == Role::authority)
    return invalid("'" + to_uri(subject.name).substr(0, 100) + "' is no name for a certificate");
  if (subject.addresses.size() > addresses_max) return invalid("a certificate has too many addresses");
  for (const std::string& address : subject.addresses) {
    if (!is_address(address) && !is_dns_name(address))
      return invalid("'" + address.substr(0, 100) + "' is neither an address nor a name of a host");
  }
  const Key signer = private_key_in(authority.key);
  const Certificate issuer = certificate_in(authority.certificate);
  const Key holder = public_key_in(key.text);
  if (!signer || !issuer || !holder) return failed("a key or a certificate is damaged").within("authority");
  auto above = read_certificate(authority.certificate);
  if (!above) return std::move(above).error().within("authority");
  if (term.now >= above->until)
    return failed("the cluster's authority has expired at " + format_instant(above->until))
        .remedy(
            "if the date is right, move authority.pem out of the controller's folder: "
            "`tutti controller init` makes another one, and the nodes join anew");
  const bool is_node = subject.name.role == Role::node;
  // Who calls cannot be who is called: neither the use of a node's certificate nor its subject, which no host
  // can be named, lets it stand for a controller.
  const char* const use = is_node ? "clientAuth" : "serverAuth";
  const std::string common_name = is_node ? "tutti node " + subject.name.node : "tutti controller";
  const Instant begin = (term.from_authority ? above->signed_at : term.now) - clock_slack;
  const Certificate certificate(X509_new());
  X509* made = certificate.get();
  if (made == nullptr || X509_set_version(made, X509_VERSION_3) != 1 || !set_serial(made) ||
      !set_times(made, begin, std::min(term.now + term.life, above->until)) ||
      !add_common_name(X509_get_subject_name(made), common_name) ||
      X509_set_issuer_name(made, X509_get_subject_name(issuer.get())) != 1 ||
      X509_set_pubkey(made, holder.get()) != 1 ||
      !add_extension(made, issuer.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(made, issuer.get(), NID_key_usage, "critical,digitalSignature") ||
      !add_extension(made, issuer.get(), NID_ext_key_usage, use) ||
      !add_extension(made, issuer.get(), NID_subject_key_identifier, "hash") ||
      !add_extension(made, issuer.get(), NID_authority_key_identifier, "keyid:always") ||
      !add_names(made, subject))
    return broken("cannot make a certificate");
  return written(made, signer.get());
}

}  // namespace tutti::pki
