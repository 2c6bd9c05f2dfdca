#include <cstdint>

#include "base/check.hpp"
#include "net/pki/pki.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // What is taken of a request is a key that can be signed.
  if (auto key = tutti::pki::read_request(text)) {
    static const auto authority = tutti::pki::make_authority("fuzz", tutti::Instant(std::chrono::hours(24)));
    const tutti::pki::Subject subject{.name = {.cluster = "fuzz", .node = "n1"}};
    auto certificate =
        tutti::pki::sign(*authority, *key, subject, {.now = tutti::Instant(std::chrono::hours(48))});
    TUTTI_CHECK(certificate.ok());
    auto identity = tutti::pki::read_certificate(*certificate);
    TUTTI_CHECK(identity.ok() && identity->name == subject.name && identity->key_id == key->id);
  }
  return 0;
}
