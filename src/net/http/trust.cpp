#include "net/http/trust.hpp"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti::net {
namespace {

// Of a controller it is a variable, of any other server a flag.
std::string authority_option(const std::string& who) {
  if (who == "issuer") return "--ca of `tutti login`, --oidc-ca of a controller";
  return who == Target().who ? "TUTTI_CA_FILE (or --ca-file)" : "--ca-file";
}

}  // namespace

void expect_host(ssl_st* tls, const std::string& host) {
  SSL_ctrl(tls, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str()));
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) != 1) SSL_set1_host(tls, host.c_str());
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
