// Whether the other side of TLS is the one that is meant. For this module's own files only.
#pragma once

#include <string>

#include "base/result.hpp"
#include "net/http/client.hpp"

struct ssl_st;

namespace tutti::net {

// Before the handshake, on the side of who calls: what the certificate has to name.
void expect_host(ssl_st* tls, const std::string& host);

// Why nobody can be trusted by the authority of this file, which could not be loaded. `who` is called.
Error no_authority(const std::string& ca_file, const std::string& who = Target().who);

// Why the certificate was not taken, as OpenSSL has it (X509_V_ERR_...), and what can be done.
Error untrusted(const Target& target, long verdict);

}  // namespace tutti::net
