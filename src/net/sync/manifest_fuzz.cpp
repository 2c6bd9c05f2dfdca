#include <cstdint>

#include "net/sync/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // What is accepted is in the one form that is written.
  if (auto manifest = tutti::sync::decode(bytes)) TUTTI_CHECK(tutti::sync::encode(*manifest) == bytes);
  return 0;
}
