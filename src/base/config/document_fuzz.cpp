#include <cstdint>

#include "base/config/document.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(tutti::config::parse_document(bytes, "fuzz.yaml"));
  return 0;
}
