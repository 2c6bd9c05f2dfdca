// JSON from anywhere: whatever it is, the parser answers, and what it accepts is the same after it was
// written.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = parse(text);
  TUTTI_CHECK(scan(text, text_bytes_max).ok() == value.ok());
  if (!value) return 0;
  for (const Style style : {Style{}, Style{.indent = 2}, Style{.ascii = true}}) {
    const auto again = parse(write(*value, style));
    TUTTI_CHECK(again && *again == *value);
  }
  return 0;
}
