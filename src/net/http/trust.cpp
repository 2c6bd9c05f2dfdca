#include "net/http/trust.hpp"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace tutti::net {
namespace {

// Of a controller it is a variable, of any other server a flag.
std::string authority_option(const std::string& who) {
  if (who == "issuer") return "--ca of `tutti login`, --oidc-ca of a controller";
  return who == Target().who ? "TUTTI_CA_FILE (or --ca-file)" : "--ca-file";
}

constexpr std::string_view cluster_protocol = "tutti-cluster";

// Of what is said first: two bytes with the length of the list, then each name behind a byte with its own.
bool wants_cluster(SSL* tls) {
  const unsigned char* bytes = nullptr;
  std::size_t size = 0;
  if (SSL_client_hello_get0_ext(tls, TLSEXT_TYPE_application_layer_protocol_negotiation, &bytes, &size) != 1)
    return false;
  const std::string_view list(reinterpret_cast<const char*>(bytes), size);
  for (std::size_t at = 2; at < size; at += 1 + std::size_t{bytes[at]}) {
    if (list.substr(at + 1, bytes[at]) == cluster_protocol) return true;
  }
  return false;
}

int choose(SSL* tls, int*, void* cluster) {
  if (wants_cluster(tls)) SSL_set_SSL_CTX(tls, static_cast<SSL_CTX*>(cluster));
  return SSL_CLIENT_HELLO_SUCCESS;
}

// Who is let in by that is nobody yet: what its dates mean is for the server to say, in words.
int judge(int is_good, X509_STORE_CTX* chain) {
  const int verdict = X509_STORE_CTX_get_error(chain);
  const bool is_own = X509_STORE_CTX_get_error_depth(chain) == 0;
  // Nobody signs before he is there: then the clock is wrong.
  const bool is_early = verdict == X509_V_ERR_CERT_NOT_YET_VALID;
  const bool is_date = is_early || (is_own && verdict == X509_V_ERR_CERT_HAS_EXPIRED);
  if (is_good == 1 || !is_date) return is_good;
  X509_STORE_CTX_set_error(chain, X509_V_OK);
  return 1;
}

}  // namespace

Result<> ask_for_certificates(ssl_ctx_st* tls, const std::string& authorities) {
  auto all = pki::split_certificates(authorities);
  if (!all) return std::move(all).error().within("authorities of clients");
  for (const std::string& text : *all) {
    BIO* bio = BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
    X509* authority = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    const bool added = authority != nullptr &&
                       X509_STORE_add_cert(SSL_CTX_get_cert_store(tls), authority) == 1 &&
                       SSL_CTX_add_client_CA(tls, authority) == 1;
    X509_free(authority);
    BIO_free(bio);
    if (!added) return failed("one of them cannot be used").within("authorities of clients");
  }
  // Each connection shows its certificate anew: one that was good yesterday is no ticket for today.
  SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(tls, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(tls, 0);
  SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, judge);
  return {};
}

Result<> show_certificate(ssl_ctx_st* tls, const Target& target) {
  if (target.certificate_file.empty()) return {};
  const bool shown = SSL_CTX_use_certificate_chain_file(tls, target.certificate_file.c_str()) == 1 &&
                     SSL_CTX_use_PrivateKey_file(tls, target.key_file.c_str(), SSL_FILETYPE_PEM) == 1;
  ERR_clear_error();
  if (shown) return {};
  return failed("the certificate or its key cannot be read, or they do not belong together")
      .within(target.certificate_file)
      .remedy("`tutti agent join` with a new token (`tutti nodes token`) gets another one");
}

Result<> want_cluster(ssl_ctx_st* tls) {
  const std::string list = static_cast<char>(cluster_protocol.size()) + std::string(cluster_protocol);
  const auto* bytes = reinterpret_cast<const unsigned char*>(list.data());
  if (SSL_CTX_set_alpn_protos(tls, bytes, static_cast<unsigned>(list.size())) == 0) return {};
  return failed("no memory for what is wanted of the controller");
}

void show_to_cluster(ssl_ctx_st* tls, ssl_ctx_st* cluster) {
  SSL_CTX_set_client_hello_cb(tls, choose, cluster);
}

std::string shown_certificate(ssl_st* tls) {
  X509* certificate = SSL_get1_peer_certificate(tls);
  if (certificate == nullptr) return "";
  unsigned char* bytes = nullptr;
  const int size = i2d_X509(certificate, &bytes);
  X509_free(certificate);
  if (size <= 0) return "";
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return der;
}

void expect_host(ssl_st* tls, const std::string& host) {
  SSL_ctrl(tls, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str()));
  // Where a certificate names no host at all, its subject would do instead: that of a node is what it wanted
  // to be called.
  SSL_set_hostflags(tls, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) != 1) SSL_set1_host(tls, host.c_str());
}

Result<> trust_authority(ssl_ctx_st* tls, const Target& target) {
  if (target.authority.empty()) {
    if (SSL_CTX_load_verify_locations(tls, target.ca_file.c_str(), nullptr) == 1) return {};
    return no_authority(target.ca_file, target.who);
  }
  BIO* const text = BIO_new_mem_buf(target.authority.data(), static_cast<int>(target.authority.size()));
  X509* const certificate = text == nullptr ? nullptr : PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
  const bool is_added =
      certificate != nullptr && X509_STORE_add_cert(SSL_CTX_get_cert_store(tls), certificate) == 1;
  X509_free(certificate);
  BIO_free(text);
  if (!is_added)
    return failed("the authority's certificate cannot be used").within(target.who + " " + target.text());
  return {};
}

Error no_authority(const std::string& ca_file, const std::string& who) {
  const int file = ::open(ca_file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Error why =
      file < 0 ? failed_errno("cannot be read", errno) : failed("there is no certificate (PEM) in it");
  if (file >= 0) ::close(file);
  return std::move(why)
      .within("certificate authority " + ca_file)
      .remedy(authority_option(who) + " must name a file with the authority (PEM) that has signed the " +
              who + "'s certificate");
}

Error unwanted(const Target& target, const std::string& why) {
  return failed("it does not take the certificate " + target.certificate_file + " (" + why + ")")
      .remedy(
          "it is of an authority that is not trusted there any more: `tutti agent join` with a new token "
          "(`tutti nodes token`) gets another one");
}

Error untrusted(const Target& target, long verdict) {
  const std::string why = std::string(" (") + X509_verify_cert_error_string(verdict) + ")";
  switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return failed("its certificate does not name " + target.host + ", by which it was called" + why)
          .remedy(
              "call it by a name or an address that its certificate has, or give it a certificate that "
              "has " +
              target.host + " (subjectAltName)");
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return failed("its certificate, or that of its authority, has expired by the clock of this machine" +
                    why)
          .remedy("renew the certificate; if it is valid still, set the clock of this machine");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return failed(
                 "its certificate, or that of its authority, is not valid yet by the clock of this machine" +
                 why)
          .remedy("set the clock of this machine, or of the one that has made the certificate");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return failed("its certificate is of no authority in " + target.ca_file + why)
          .remedy(authority_option(target.who) +
                  " must name the authority (PEM) that has signed its certificate");
    default:
      return failed("its certificate cannot be trusted" + why)
          .remedy("`openssl s_client -connect " + target.text() + "` shows it");
  }
}

}  // namespace tutti::net
