// Any bytes as a zip file: its names, or what is wrong with it.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "serve/load/archive.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static_cast<void>(
      tutti::serve::archive_names(size,
                                  [&](std::uint64_t begin, std::span<std::byte> buffer) -> tutti::Result<> {
                                    if (begin > size || buffer.size() > size - begin) std::abort();
                                    std::memcpy(buffer.data(), data + begin, buffer.size());
                                    return {};
                                  })
          .ok());
  return 0;
}
