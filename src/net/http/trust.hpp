// Whether the other side of TLS is the one that is meant. For this module's own files only.
#pragma once

#include <string>

#include "base/result.hpp"
#include "net/http/client.hpp"

struct ssl_st;
struct ssl_ctx_st;

namespace tutti::net {

// On the side of who calls: whom he trusts.
Result<> trust_authority(ssl_ctx_st* tls, const Target& target);
// Before the handshake, on the side of who calls: what the certificate has to name, among those names that
// are for it (subjectAltName).
void expect_host(ssl_st* tls, const std::string& host);

// On the side of who is called: whoever connects may show a certificate of one of these authorities (PEM),
// and is refused with one of another. One that has expired, or is not good yet, is let in to be told so.
Result<> ask_for_certificates(ssl_ctx_st* tls, const std::string& authorities);
// On the side of who calls: its own, where it has one.
Result<> show_certificate(ssl_ctx_st* tls, const Target& target);
// Before the handshake, of who calls: it wants what the cluster's authority has signed. It says so as one
// says which protocol is to be spoken (ALPN), so that whatever passes connections on by the host leaves it
// alone.
Result<> want_cluster(ssl_ctx_st* tls);
// On the side of who is called: to whoever wants that, this other one is shown. It outlives the first.
void show_to_cluster(ssl_ctx_st* tls, ssl_ctx_st* cluster);
// What the other side has shown (DER), "" if nothing.
std::string shown_certificate(ssl_st* tls);

// Why nobody can be trusted by the authority of this file, which could not be loaded. `who` is called.
Error no_authority(const std::string& ca_file, const std::string& who = Target().who);

// Why the other side has not taken ours.
Error unwanted(const Target& target, const std::string& why);

// Why the certificate was not taken, as OpenSSL has it (X509_V_ERR_...), and what can be done.
Error untrusted(const Target& target, long verdict);

}  // namespace tutti::net
