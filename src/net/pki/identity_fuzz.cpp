#include <cstdint>

#include "base/check.hpp"
#include "net/pki/pki.hpp"

// Certificates that somebody shows, in DER and in PEM, and the names in them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // What is accepted is in the one form that is written.
  if (auto name = tutti::pki::parse_uri(bytes)) TUTTI_CHECK(tutti::pki::to_uri(*name) == bytes);
  for (const auto& identity :
       {tutti::pki::read_certificate_der(bytes), tutti::pki::read_certificate(bytes)}) {
    if (identity) TUTTI_CHECK(tutti::pki::parse_uri(tutti::pki::to_uri(identity->name)).ok());
  }
  if (auto all = tutti::pki::split_certificates(bytes)) {
    for (const auto& one : *all) TUTTI_CHECK(tutti::pki::fingerprint(one).ok());
  }
  return 0;
}
