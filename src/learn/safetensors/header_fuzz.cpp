// The first bytes of a file from anywhere: whatever they claim, the parser answers, and what it accepts can
// be laid out again.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "learn/safetensors/header.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::safetensors;
  const auto header = parse_header(std::as_bytes(std::span(data, size)), size);
  if (!header) return 0;
  const Layout layout = lay_out(header->entries, header->metadata);
  const auto again = parse_header(tutti::as_bytes(layout.header), layout.file_bytes);
  if (!again || again->metadata != header->metadata || again->entries.size() != header->entries.size()) {
    __builtin_trap();
  }
  return 0;
}
