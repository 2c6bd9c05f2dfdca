// A dataset.json from anywhere.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.hpp"
#include "learn/dataset/format.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::dataset;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // What is accepted is the same after it was written.
  if (const auto description = read_description(bytes)) {
    const auto again = read_description(write_description(*description));
    TUTTI_CHECK(again && write_description(*again) == write_description(*description));
  }
  return 0;
}
